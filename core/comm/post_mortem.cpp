#include "core/comm/post_mortem.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "core/base/json_text.h"
#include "core/base/log.h"

namespace dtorch {
namespace {

std::string key_of(int rank) { return "failure/" + std::to_string(rank); }

std::optional<FailureNote> parse_note(int rank, const std::string& text) {
  try {
    const auto json = nlohmann::json::parse(text);
    FailureNote note;
    note.rank = rank;
    note.kind = error_kind_from(json.at("kind").get<std::string>()).value_or(ErrorKind::lost);
    note.message = json.at("message").get<std::string>();
    note.ranks = json.at("ranks").get<std::vector<int>>();
    note.sequence = json.at("sequence").get<std::uint64_t>();
    note.call = json.at("call").get<std::string>();
    return note;
  } catch (const nlohmann::json::exception& error) {
    log_warning("the failure note of rank " + std::to_string(rank) + " is malformed: " + error.what());
    return std::nullopt;
  }
}

}  // namespace

void publish_note(const StorePtr& store, const FailureNote& note) {
  const nlohmann::json json{{"kind", to_string(note.kind)},
                            {"message", note.message},
                            {"ranks", note.ranks},
                            {"sequence", note.sequence},
                            {"call", note.call}};
  store->set(key_of(note.rank), json_text(json));
}

std::map<int, FailureNote> read_notes(const StorePtr& store, const std::vector<int>& ranks, Deadline deadline,
                                      const std::function<bool(const std::map<int, FailureNote>&)>& enough) {
  std::map<int, FailureNote> notes;
  auto unread = ranks;
  while (true) {
    std::erase_if(unread, [&](int rank) {
      if (!store->check({key_of(rank)})) return false;
      if (auto note = parse_note(rank, store->get_to_str(key_of(rank))))
        notes.emplace(rank, std::move(*note));
      return true;
    });
    if (enough(notes) || deadline.expired()) return notes;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace dtorch
