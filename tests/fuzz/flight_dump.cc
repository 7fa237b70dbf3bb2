// Dumps of the flight recorder, as `lockstep blame` reads them: several, with a byte 0 between them.
#include "cluster/flight.h"

#include "cluster/blame.h"
#include "fuzz/fuzz.h"

using namespace lockstep;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<FlightDump> dumps;
  for (const std::string& part : fuzz::parts_of(fuzz::text_of(data, size), '\0', 8)) {
    FlightDump dump;
    if (!fuzz::accepts([&] { dump = flight_dump_from(part, "input.json"); })) continue;
    const std::string written = to_json(dump);
    fuzz::require(to_json(flight_dump_from(written, "written.json")) == written, "a dump reads back the same");
    dumps.push_back(std::move(dump));
  }
  fuzz::accepts([&] { blame(dumps); });
  return 0;
}
