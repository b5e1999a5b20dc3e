// Any bytes are a spec or refused with places, and a spec survives its canonical text.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/job/load.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const dtorch::JobSpec spec =
        dtorch::parse_job(std::string(reinterpret_cast<const char*>(data), size), "fuzz");
    if (!(dtorch::parse_job(dtorch::to_yaml(spec), "canonical") == spec)) std::abort();
  } catch (const dtorch::SpecError& error) {
    for (const dtorch::Diagnostic& diagnostic : error.diagnostics()) {
      if (diagnostic.line < 1 || diagnostic.column < 1) std::abort();
    }
  } catch (const dtorch::Error&) {  // over 1 MiB
  }
  return 0;
}
