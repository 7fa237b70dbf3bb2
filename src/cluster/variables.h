// Parsing of environment variables; errors name the variable. Empty variables count as unset. Pure functions,
// thread-safe.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/address.h"
#include "cluster/detectors.h"

namespace lockstep::detail {

// Null if unset.
const std::string* find_variable(const Environment&, const std::string& name);

// An integer of at least `low`. Throws Error, with the variable and its value, for anything else.
// REQUIRES for number_variable(): the variable is set.
int number_variable(const Environment&, const std::string& name, int low);
std::optional<int> optional_number(const Environment&, const std::string& name, int low);

// Throws Error unless id < count: `initialize: RANK is "4" and WORLD_SIZE is "4"; ids run from 0 to 3`.
void check_id(const std::string& id_name, int id, const std::string& count_name, int count);

// Parses "0,1,3". Throws Error, naming `source`, unless it is a list of distinct numbers.
std::vector<int> parse_ids(std::string_view text, std::string_view source);

// "A", "A and B", "A, B and C".
std::string join_words(const std::vector<std::string>& list);

// Returns NotDetected unless all variables are set. If only some are set, the reason lists them and adds `remedy`.
std::optional<NotDetected> check_all_set(const Environment&, std::initializer_list<const char*> names,
                                         std::string_view remedy);

// The port in LOCKSTEP_COORDINATOR_PORT or JAX_COORDINATOR_PORT; `otherwise` if both are unset.
int coordinator_port(const Environment&, int otherwise);

// Parses HOST or HOST:PORT in `name`. The port may also be in the variable `port_name`; `otherwise` is the default
// (0: none). Throws Error if there is no port, or if the two variables name different ports.
Address address_variable(const Environment&, const std::string& name, const std::string& port_name, int otherwise);

}  // namespace lockstep::detail
