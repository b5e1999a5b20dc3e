// NodeLink's stages: how all nodes come to the same end of each.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "core/base/host.h"
#include "core/base/json_text.h"
#include "core/launch/node_link.h"

namespace dtorch {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

/** How long the others may take to hear how a stage has ended, and those that are still starting. */
constexpr milliseconds kHearing(1'000);
constexpr milliseconds kLateHearing(5'000);
constexpr milliseconds kPollPause(20);
/** A node whose agent, which beats once a second, has been silent for so long is gone. */
constexpr milliseconds kSilence(10'000);
constexpr milliseconds kLookEvery(1'000);

Failure lost_launcher(const std::string& node, const std::string& host, const std::string& how) {
  Failure failure;
  failure.kind = ErrorKind::lost;
  failure.host = host;
  failure.message = fmt::format("the launcher of {} {}", node, how);
  failure.help = "look for what ended it there: a signal, the machine, or the network";
  return failure;
}

/** How another node says that a stage ended; a failure where that cannot be read. */
json read_end(const json& answer) {
  try {
    json end = json::parse(answer.at("value").get<std::string>());
    if (end.contains("failure")) end.at("failure").get<Failure>();
    if (end.contains("stop") && !asks_to_stop(end.at("stop").get<int>()))
      throw Error(ErrorKind::disagree, "no signal that asks to stop: " + json_text(end.at("stop")));
    end.value("from", "");
    end.value("host", "");
    end.value("node", 0);
    end.value("gone", false);
    return end;
  } catch (const std::exception& error) {
    Failure failure;
    failure.kind = ErrorKind::disagree;
    failure.host = host_name();
    failure.message = fmt::format("another node ended, and what it says cannot be read: {}", error.what());
    return {{"failure", failure}};
  }
}

}  // namespace

std::string NodeLink::key(const std::string& name) const { return job_key(stage_ + "/" + name); }

void NodeLink::withdraw() {
  stage_.clear();
  session_.supervisor().on_cause = nullptr;
  session_.agent().request({{"type", "will"}}, [](const json&) {});
}

json NodeLink::end_value(json value) const {
  value["from"] = session_.tag();
  value["node"] = node_rank_;
  value["host"] = host_name();
  return value;
}

Failure NodeLink::lost_node(int node, const std::string& how) const {
  const auto found = known_.find(node);
  const std::string host = found != known_.end() ? found->second.host : "";
  return lost_launcher(named(node, host), host, how);
}

void NodeLink::begin_stage(const std::string& name) {
  stage_ = name;
  end_.reset();
  decided_ = false;
  session_.supervisor().on_cause = [this](const Failure& failure) { decide({{"failure", failure}}); };
  leave_will();
  watch(name);
}

/** What the others hear if this launcher dies without a word. */
void NodeLink::leave_will() {
  const Failure gone = lost_launcher(here(), host_name(), fmt::format("(pid {}) was killed", ::getpid()));
  const json will = end_value({{"failure", gone}, {"gone", true}});
  session_.agent().request(
      {{"type", "will"}, {"counter", key("ends")}, {"key", key("end")}, {"value", json_text(will)}},
      [](const json&) {});
}

void NodeLink::watch(const std::string& stage) {
  const json request{{"type", "get"}, {"key", key("end")}, {"timeout_ms", kGetTime.count()}};
  session_.agent().request(request, [this, stage](const json& answer) {
    if (stage != stage_ || end_) return;
    if (answer.value("type", "") == "value") {
      heard(read_end(answer));
    } else if (answer.value("kind", "") == to_string(ErrorKind::timeout)) {
      look_for_life();
      watch(stage);
    } else {
      Failure failure = lost_node(0, "is gone");
      if (folder_)
        failure.message =
            fmt::format("the other nodes can no longer be reached: {}", answer.value("message", ""));
      if (node_rank_ == 0) failure.message = answer.value("message", "");
      const json end{{"failure", failure}, {"gone", true}};
      heard(end);
    }
  });
}

void NodeLink::heard(const json& end) {
  end_ = end;
  if (end.value("from", "") == session_.tag()) return;
  Supervisor& supervisor = session_.supervisor();
  if (end.contains("failure")) {
    supervisor.fail(end.at("failure").get<Failure>());
  } else if (end.contains("stop")) {
    supervisor.stop(end.at("stop").get<int>(), " on " + named(end.value("node", 0), end.value("host", "")));
  }
}

/** Says how the stage ends, unless somebody has said it already. */
void NodeLink::decide(const json& value) {
  if (decided_ || end_) return;
  decided_ = true;
  session_.agent().request({{"type", "first"},
                            {"counter", key("ends")},
                            {"key", key("end")},
                            {"value", json_text(end_value(value))}},
                           [](const json&) {});
}

/** This node is through with the stage; the last one to be ends it. */
void NodeLink::arrive() {
  const std::string stage = stage_;
  session_.agent().request({{"type", "add"}, {"key", key("through")}, {"amount", 1}},
                           [this, stage](const json& answer) {
                             if (stage == stage_ && counted(answer) >= nnodes_) decide({{"done", true}});
                           });
}

void NodeLink::await_end(Deadline deadline, milliseconds report_every, const std::function<void()>& report) {
  auto next_report = Clock::now() + report_every;
  while (!end_) {
    session_.pump(Deadline(std::min(next_report, deadline.at())));
    if (Clock::now() < next_report && !deadline.expired()) continue;
    report();
    next_report = Clock::now() + report_every;
  }
  session_.pump(Deadline::after(milliseconds(0)));  // throws if it ended badly
}

void NodeLink::begin_attempt(int attempt) {
  if (linked()) begin_stage(std::to_string(attempt));
}

void NodeLink::finish_attempt() {
  if (!linked()) return;
  arrive();
  bool told = false;
  await_end(Deadline(Clock::time_point::max()), kReportEvery, [&] {
    if (!std::exchange(told, true))
      observer_.log(-1, "info", "the ranks of this node are done; waiting for those of the other nodes");
  });
}

/** Node 0: a node whose agent has been silent for long is gone, with its machine or the way to it. */
void NodeLink::look_for_life() {
  if (node_rank_ != 0 || folder_ || Clock::now() < next_look_) return;
  next_look_ = Clock::now() + kLookEvery;
  for (int node = 1; node < nnodes_; ++node) {
    const json request{{"type", "add"}, {"key", job_key(fmt::format("beat/{}", node))}, {"amount", 0}};
    session_.agent().request(request, [this, node](const json& answer) {
      const auto beats = counted(answer);
      Life& life = lives_[node];
      if (beats != life.beats || beats == 0) life = {beats, Clock::now()};
      if (end_ || Clock::now() - life.since < kSilence) return;
      const Failure failure =
          lost_node(node, fmt::format("has shown no sign of life for {} s", kSilence.count() / 1000));
      decide({{"failure", failure}, {"gone", true}});
      session_.supervisor().fail(failure);
    });
  }
}

JobOutcome NodeLink::run_to_the_end(const std::function<void()>& attempt) {
  try {
    attempt();
  } catch (const JobEnded&) {
  } catch (const Error& error) {
    session_.supervisor().fail(to_failure(error, host_name()));
  }
  Supervisor& supervisor = session_.supervisor();
  if (linked() && supervisor.stop_signal() != 0) decide({{"stop", supervisor.stop_signal()}});
  supervisor.pump(Deadline::after(milliseconds(0)));
  while (!supervisor.over()) supervisor.pump(Deadline::after(std::chrono::seconds(1)));
  JobOutcome outcome = supervisor.finish();
  if (linked()) {
    part(outcome);
    adopt(outcome);
  }
  return outcome;
}

/** Asks without minding that the job has ended; nothing: no answer in time. */
std::optional<json> NodeLink::ask(const json& request, Deadline deadline) {
  auto answer = std::make_shared<std::optional<json>>();
  session_.agent().request(request, [answer](const json& message) { *answer = message; });
  while (!*answer && !deadline.expired()) session_.supervisor().pump(deadline);
  return *answer;
}

/** Hears how the stage ended; node 0, whose store the others need for that, leaves after them. */
void NodeLink::part(const JobOutcome& outcome) {
  Deadline deadline = Deadline::after(kHearing);
  while (!end_ && !deadline.expired()) session_.supervisor().pump(deadline);
  const auto count = [&](const std::string& name, std::int64_t amount) {
    const auto answer = ask({{"type", "add"}, {"key", name}, {"amount", amount}}, deadline);
    return answer ? counted(*answer) : 0;
  };
  if (node_rank_ != 0) {
    count(key("left"), 1);
  } else if (end_) {
    std::int64_t others = nnodes_ - (node_is_gone() ? 2 : 1);
    if (stage_ == kSetup && outcome.failure) {
      // Those that are about to come should hear why they need not; but nobody waits long who asked to stop.
      const bool asked = end_->contains("stop") || outcome.failure->kind == ErrorKind::timeout;
      if (!asked) deadline = Deadline::after(kLateHearing);
      const auto claims = [&](const std::string& name) { return count(job_key(name), 0); };
      if (asked) others -= static_cast<std::int64_t>(missing_nodes(claims).size());
    }
    while (count(key("left"), 0) < others && !deadline.expired()) {
      session_.supervisor().pump(Deadline::after(kPollPause));
    }
  }
  if (folder_) ask({{"type", "leave"}}, Deadline::after(kHearing));
}

/** What failed first on another node is the cause here too, whatever this one's ranks made of it. */
void NodeLink::adopt(JobOutcome& outcome) const {
  if (!end_ || !outcome.failure || !end_->contains("failure") || end_->value("from", "") == session_.tag())
    return;
  if (session_.supervisor().stop_signal() != 0) return;
  const auto first = end_->at("failure").get<Failure>();
  if (first.message == outcome.failure->message) return;
  outcome.failure = first;
  outcome.tail.clear();
  outcome.program_code = ExitStatus{std::max(first.exit_code, 0), first.signal}.shell_code();
}

}  // namespace dtorch
