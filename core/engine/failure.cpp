#include "core/engine/failure.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <new>
#include <nlohmann/json.hpp>

#include "core/base/host.h"
#include "core/base/json_text.h"
#include "core/base/placed.h"
#include "core/base/units.h"
#include "core/comm/process_group.h"
#include "core/comm/rendezvous.h"

namespace dtorch::engine {
namespace {

void describe_collective(const CollectiveError& error, Failure& failure) {
  const auto& record = error.record();
  // The operation reads "all_reduce sum float32[65537]"; people look for the number first.
  const auto space = record.operation.find(' ');
  const auto name = record.operation.substr(0, space);
  const auto rest = space == std::string::npos ? std::string() : record.operation.substr(space);
  // An abort between two collectives has none.
  if (!record.operation.empty()) failure.collective = fmt::format("{} #{}{}", name, record.sequence, rest);
  failure.missing_ranks = error.missing();
  failure.consequence = error.kind() == ErrorKind::lost;
}

/** A message of libtorch's, if there is one, is told without its source line: how much was wanted. */
void out_of_memory(Failure& failure) {
  constexpr std::string_view kWanted = "you tried to allocate ";
  const auto at = failure.message.find(kWanted);
  const auto bytes =
      at == std::string::npos ? 0 : std::strtoull(failure.message.c_str() + at + kWanted.size(), nullptr, 10);
  failure.kind = ErrorKind::os_resource;
  failure.message =
      bytes == 0 ? "out of memory" : fmt::format("out of memory: {} could not be had", human_size(bytes));
  failure.help = "free memory, or ask for less: smaller batches, layers or sizes, or fewer ranks";
}

void describe(const c10::Error& error, Failure& failure) {
  failure.message = error.what_without_backtrace();
  // libtorch has no type of its own for it.
  const bool memory = failure.message.find("can't allocate memory") != std::string::npos;
  failure.kind = ErrorKind::training;
  if (memory) out_of_memory(failure);
}

}  // namespace

Failure describe_failure(const std::exception_ptr& exception,
                         const std::optional<std::string>& abort_reason) {
  Failure failure;
  failure.host = host_name();
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    failure = to_failure(error, failure.host);
    if (const auto* collective = dynamic_cast<const CollectiveError*>(&error))
      describe_collective(*collective, failure);
    if (const auto* meeting = dynamic_cast<const MissingRanksError*>(&error))
      failure.missing_ranks = meeting->missing();
  } catch (const c10::Error& error) {
    describe(error, failure);
  } catch (const std::bad_alloc&) {
    out_of_memory(failure);
  } catch (const std::exception& error) {
    failure.message = fmt::format("internal error: {}", error.what());
  } catch (...) {
    failure.message = "internal error: an exception of unknown type";
  }
  if (abort_reason) {
    failure.kind = ErrorKind::lost;
    failure.message = *abort_reason;
    failure.help.clear();
    failure.consequence = true;
  }
  return failure;
}

void print_failure(const Failure& failure) {
  std::string text = names_its_place(failure.kind, failure.message)
                         ? failure.message + "\n"
                         : fmt::format("dtorch: error: {}\n", failure.message);
  if (!failure.help.empty()) text += fmt::format("help: {}\n", failure.help);
  std::fputs(text.c_str(), stderr);
}

void write_elastic_error(const Failure& failure) {
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (path == nullptr || *path == '\0') return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::string message = failure.message;
  if (!failure.help.empty()) message += "\nhelp: " + failure.help;
  std::ofstream file(path);
  file << json_text(
      {{"message", message}, {"timestamp", std::chrono::duration_cast<std::chrono::seconds>(now).count()}});
}

}  // namespace dtorch::engine
