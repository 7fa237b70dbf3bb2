// Reading the variables of a launcher, with messages that name them. Empty variables count as not set. Pure functions,
// safe from any thread.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/address.h"
#include "cluster/detectors.h"

namespace lockstep::detail {

// Null when not set.
const std::string* find_variable(const Environment&, const std::string& name);

// A number of at least `low`. Throws Error, naming the variable and its text, for anything else.
int number_variable(const Environment&, const std::string& name, int low);
std::optional<int> optional_number(const Environment&, const std::string& name, int low);

// Throws Error unless id < count: `initialize: RANK is "4" and WORLD_SIZE is "4"; ids run from 0 to 3`.
void check_id(const std::string& id_name, int id, const std::string& count_name, int count);

// "0,1,3". Throws Error, naming the source, for what is no list of different numbers.
std::vector<int> parse_ids(std::string_view text, std::string_view source);

// "A", "A and B", "A, B and C".
std::string join_words(const std::vector<std::string>& list);

// NotDetected, when not all of them are set; the remedy is added when some are.
std::optional<NotDetected> check_all_set(const Environment&, std::initializer_list<const char*> names,
                                         std::string_view remedy);

// The port that a variable chooses (LOCKSTEP_COORDINATOR_PORT, JAX_COORDINATOR_PORT), else the one given.
int coordinator_port(const Environment&, int otherwise);

// HOST or HOST:PORT in one variable, and perhaps the port in another, or else `otherwise` (0: there must be one).
// Throws Error when there is no port, or two that differ.
Address address_variable(const Environment&, const std::string& name, const std::string& port_name, int otherwise);

}  // namespace lockstep::detail
