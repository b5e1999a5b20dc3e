#include "core/comm/join.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "core/base/error.h"
#include "core/base/json_text.h"
#include "core/base/log.h"
#include "core/comm/member.h"
#include "core/comm/rendezvous.h"

namespace dtorch {
namespace {

using namespace std::chrono_literals;

constexpr auto kFirstCheck = 200us;
constexpr auto kProgressEvery = 3s;
/** How long a rank that serves the store waits for the others to hear the verdict. */
constexpr auto kLinger = 1s;
constexpr std::size_t kMaxDigestText = 64 * 1024;

class Join {
 public:
  explicit Join(const JoinRequest& request) : request_(request), store_(*request.store) {}

  JoinResult run() {
    // What is raised or called from now on concerns us; what is there already does not.
    alarms_heard_ = counter("alarms");
    calls_answered_ = counter("calls");
    called_ = calls_answered_ > 0;
    refuse_if_complete();
    take_rank();
    enter();
    if (self_.rank == 0) call_others();
    auto next_progress = Clock::now() + kProgressEvery;
    while (true) {
      if (request_.on_poll) request_.on_poll();
      hear_alarms();
      if (self_.rank == 0 ? all_here() : verdict_is_in()) break;
      if (request_.deadline.expired()) time_out();
      if (Clock::now() >= next_progress) {
        report_progress();
        next_progress += kProgressEvery;
      }
      pause();
    }
    settle();
    return {self_.rank, generation_};
  }

 private:
  long counter(const std::string& key) { return store_.add(key, 0); }

  std::optional<std::string> read(const std::string& key) {
    if (!store_.check({key})) return std::nullopt;
    return store_.get_to_str(key);
  }

  std::string call_key(const std::string& what) const {
    return fmt::format("call/{}/{}", calls_answered_, what);
  }

  void pause() {
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause_, request_.deadline.remaining()));
    // Many ranks must not keep the store busy with asking.
    const auto longest = std::max<std::chrono::microseconds>(10ms, request_.world_size * 500us);
    pause_ = std::min(pause_ * 3 / 2, longest);
  }

  /** A group whose attempt nobody repeats has formed already: this process is a duplicate or came too late.
   */
  void refuse_if_complete() {
    if (request_.outlives || calls_answered_ == 0) return;
    const auto verdict = read(call_key("verdict"));
    if (!verdict) return;
    // The job's own size: this process may have been told another one.
    const auto sequences = nlohmann::json::parse(*verdict, nullptr, false);
    throw Error(
        ErrorKind::disagree,
        fmt::format(
            "{}: all {} ranks of this job have come already; this process (rank {} of {}, pid {}) is one too "
            "many",
            request_.where, sequences.is_array() ? sequences.size() : std::size_t(request_.world_size),
            request_.rank < 0 ? "not given" : std::to_string(request_.rank), request_.world_size, ::getpid()),
        "end the other job, or give this one another port, path or run id");
  }

  void take_rank() {
    self_ = describe_self(request_.rank, request_.world_size, request_.digest);
    if (self_.rank >= 0) return;
    self_.rank = static_cast<int>(store_.add("tickets", 1) - 1);
    if (self_.rank < self_.world_size) return;
    throw Error(ErrorKind::disagree,
                fmt::format("{}: this process would be rank {}, but the job has {} ranks and all have come",
                            request_.where, self_.rank, self_.world_size),
                "start as many processes as world_size says, and give each job a folder of its own");
  }

  void enter() {
    self_.sequence = store_.add("members", 1);
    store_.set(fmt::format("text/{}", self_.sequence), request_.digest_text.substr(0, kMaxDigestText));
    store_.set(fmt::format("member/{}", self_.sequence), to_text(self_));
    // Rank 0 asks those that came before it; the others look only at those that come after.
    scanned_ = self_.rank == 0 ? 0 : self_.sequence;
    here_[self_.rank] = self_;
  }

  void call_others() {
    calls_answered_ = store_.add("calls", 1);
    generation_ = fmt::format("group{}", calls_answered_);
  }

  /** Reads registrations not seen yet; those whose record is not there (yet) stay to be read. */
  void scan() {
    const auto count = counter("members");
    for (; scanned_ < count; ++scanned_) pending_.insert(scanned_ + 1);
    for (auto it = pending_.begin(); it != pending_.end();) {
      const auto sequence = *it;
      const auto text = sequence == self_.sequence ? std::nullopt : read(fmt::format("member/{}", sequence));
      const bool asked = self_.rank == 0 && sequence < self_.sequence;
      if (sequence == self_.sequence) {
        it = pending_.erase(it);
      } else if (!text || (asked && !read(call_key(fmt::format("here/{}", sequence))))) {
        ++it;
      } else {
        if (const auto member = member_from(*text, sequence)) admit(*member);
        it = pending_.erase(it);
      }
    }
  }

  void admit(const Member& member) {
    auto conflict = find_conflict(self_, member);
    const auto same = here_.find(member.rank);
    if (!conflict && same != here_.end()) conflict = find_conflict(same->second, member);
    if (conflict) disagree(*conflict, member);
    here_[member.rank] = member;
  }

  [[noreturn]] void disagree(Conflict conflict, const Member& member) {
    if (conflict.digests_differ) {
      const auto other = read(fmt::format("text/{}", member.sequence)).value_or("");
      conflict.message += differing_lines(self_, request_.digest_text, member, other);
    }
    raise(ErrorKind::disagree, conflict.message, conflict.help, {},
          std::max(self_.world_size, member.world_size));
  }

  bool all_here() {
    scan();
    if (static_cast<int>(here_.size()) < self_.world_size) return false;
    nlohmann::json sequences = nlohmann::json::array();
    for (const auto& [rank, member] : here_) sequences.push_back(member.sequence);
    store_.set(call_key("verdict"), json_text(sequences));
    return true;
  }

  /** Answers rank 0's call and looks for its verdict; before a call, compares with those that came later. */
  bool verdict_is_in() {
    if (const auto calls = counter("calls"); calls > calls_answered_) {
      calls_answered_ = calls;
      called_ = true;
      store_.set(call_key(fmt::format("here/{}", self_.sequence)), "");
      pause_ = kFirstCheck;
    }
    if (!called_) {
      scan();
      return false;
    }
    const auto verdict = read(call_key("verdict"));
    if (!verdict) return false;
    const auto sequences = nlohmann::json::parse(*verdict, nullptr, false);
    if (!sequences.is_array() ||
        std::find(sequences.begin(), sequences.end(), self_.sequence) == sequences.end()) {
      return false;  // an earlier attempt's: rank 0 will call again
    }
    generation_ = fmt::format("group{}", calls_answered_);
    return true;
  }

  void hear_alarms() {
    const auto raised = counter("alarms");
    if (raised <= alarms_heard_) return;
    const auto key = fmt::format("alarm/{}", alarms_heard_ + 1);
    const auto text = read(key);
    if (!text) return;
    const auto alarm = nlohmann::json::parse(*text, nullptr, false);
    store_.add(key + "/heard", 1);
    const bool counted =
        alarm.is_object() && alarm.contains("expected") && alarm["expected"].is_number_integer();
    const long expected = counted ? alarm["expected"].get<long>() : 0;
    if (request_.serving) linger(key, *text, 0, expected);
    try {
      fail(error_kind_from(alarm.at("kind").get<std::string>()).value_or(ErrorKind::lost),
           alarm.at("message").get<std::string>(), alarm.at("help").get<std::string>(),
           alarm.at("missing").get<std::vector<int>>());
    } catch (const nlohmann::json::exception&) {
      throw Error(ErrorKind::lost,
                  fmt::format("{}: another rank failed and left an unreadable reason", request_.where));
    }
  }

  /** Tells every waiting rank, then throws the same here. `expected`: how many processes may yet come to hear it. */
  [[noreturn]] void raise(ErrorKind kind, const std::string& message, const std::string& help,
                          const std::vector<int>& missing, int expected) {
    const auto known = counter("members");
    const auto text = json_text({{"kind", to_string(kind)},
                                 {"message", message},
                                 {"help", help},
                                 {"missing", missing},
                                 {"expected", expected}});
    const auto key = sound(text);
    store_.add(key + "/heard", 1);
    if (request_.serving) linger(key, text, known, expected);
    fail(kind, message, help, missing);
  }

  [[noreturn]] static void fail(ErrorKind kind, const std::string& message, const std::string& help,
                                const std::vector<int>& missing) {
    if (kind == ErrorKind::timeout) throw MissingRanksError(message, missing, help);
    throw Error(kind, message, help);
  }

  /** Raises an alarm; those that have registered by now hear it. Returns its key. */
  std::string sound(const std::string& text) {
    auto key = fmt::format("alarm/{}", store_.add("alarms", 1));
    store_.set(key, text);
    return key;
  }

  /**
   * The store ends with this process: waits, a while, until all have heard the alarm. A rank that registers after the
   * `known` ones missed it, so it is raised again for them.
   */
  void linger(const std::string& key, const std::string& text, long known, long expected) {
    const auto until = Deadline::after(kLinger);
    std::vector<std::string> alarms{key};
    while (!until.expired()) {
      const auto members = counter("members");
      if (members > known) {
        known = members;
        alarms.push_back(sound(text));
      }
      long heard = 0;  // every process hears one of them
      for (const auto& alarm : alarms) heard += store_.add(alarm + "/heard", 0);
      if (heard >= std::max(expected, members)) return;
      std::this_thread::sleep_for(1ms);
    }
  }

  /** Who has come, as far as this rank can tell: rank 0 knows, the others read every registration. */
  Members everyone() {
    if (self_.rank == 0) return here_;
    Members members;
    const auto count = counter("members");
    for (long sequence = 1; sequence <= count; ++sequence) {
      const auto text = read(fmt::format("member/{}", sequence));
      const auto member = text ? member_from(*text, sequence) : std::nullopt;
      if (member) members[member->rank] = *member;
    }
    return members;
  }

  std::string who_is_missing(const Members& members, const std::vector<int>& missing) const {
    if (missing.empty()) return fmt::format("waiting for rank 0's word; {}", hosts_text(members));
    return fmt::format("{} {} of {} {} not come; {}", missing.size() == 1 ? "rank" : "ranks",
                       ranks_text(missing), self_.world_size, missing.size() == 1 ? "has" : "have",
                       hosts_text(members));
  }

  void report_progress() {
    const auto members = everyone();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - started_).count();
    log_info(fmt::format("joining at {} for {} s: {}", request_.where, seconds,
                         who_is_missing(members, missing_ranks(members, self_.world_size))));
  }

  [[noreturn]] void time_out() {
    const auto members = everyone();
    const auto missing = missing_ranks(members, self_.world_size);
    raise(ErrorKind::timeout,
          fmt::format("rendezvous at {} timed out: {}", request_.where, who_is_missing(members, missing)),
          "see what became of those ranks; a slow start wants a longer timeouts.rendezvous", missing, 0);
  }

  /** A store that ends with rank 0 must not end before the others have read the verdict. */
  void settle() {
    const auto key = call_key("settled");
    if (self_.rank != 0) {
      store_.add(key, 1);
      return;
    }
    const auto until = Deadline::after(request_.serving ? kLinger : 0s);
    while (!until.expired() && counter(key) < self_.world_size - 1) std::this_thread::sleep_for(200us);
  }

  const JoinRequest& request_;
  c10d::Store& store_;
  const Clock::time_point started_ = Clock::now();
  Member self_;
  Members here_;
  std::set<long> pending_;  ///< registrations announced but not readable, or not yet known to be alive
  long scanned_ = 0;
  long alarms_heard_ = 0;
  long calls_answered_ = 0;
  bool called_ = false;
  std::string generation_;
  std::chrono::microseconds pause_{kFirstCheck};
};

}  // namespace

JoinResult join_ranks(const JoinRequest& request) { return Join(request).run(); }

}  // namespace dtorch
