// What a conformance case sees: one rank of several real processes, a store, the backend's factory.
#pragma once
#include <ATen/ATen.h>

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/comm/process_group.h"

namespace dtorch::conformance {

using std::chrono::milliseconds;

/** The place of one process in a run. Each case makes groups of its own, so that a failed one does not spoil
 * the next. */
class Rank {
 public:
  Rank(const BackendFactory& factory, StorePtr store, int rank, int world)
      : factory_(factory), store_(std::move(store)), rank_(rank), world_(world) {}

  int rank() const { return rank_; }
  int world() const { return world_; }
  bool last() const { return rank_ == world_ - 1; }
  void begin(std::string case_name) { case_name_ = std::move(case_name), groups_ = 0; }
  ProcessGroupPtr group(milliseconds timeout = milliseconds(60'000),
                        milliseconds init_timeout = milliseconds(60'000));
  /** Says something to the other ranks outside of any group; `await` blocks up to 30 s for it. */
  void tell(const std::string& what);
  void await(const std::string& what);

 private:
  const BackendFactory& factory_;
  StorePtr store_;
  int rank_;
  int world_;
  std::string case_name_;
  int groups_ = 0;
};

struct Case {
  const char* name;
  int min_world;
  void (*run)(Rank&);
  bool kills = false;  ///< ends or stops a rank: runs in processes of its own, the last rank reports nothing
};

std::span<const Case> collective_cases();
std::span<const Case> group_cases();
std::span<const Case> failure_cases();

/** Fails the case on this rank. */
void expect(bool condition, const std::string& message);
/** The same values (NaN is NaN, zero has no sign), without any tolerance; the same shape and dtype. */
void expect_equal(const at::Tensor& actual, const at::Tensor& expected, const std::string& what);
/** Runs `action`, which must throw an Error of this kind; returns it. */
struct Thrown {
  ErrorKind kind;
  std::string message;
  std::vector<int> missing;
  bool consequence = false;
  milliseconds after{0};
};
Thrown expect_error(const std::function<void()>& action, ErrorKind kind);
/** The same where one of several kinds may win a race. */
Thrown expect_error(const std::function<void()>& action, std::vector<ErrorKind> kinds);
bool contains(const std::string& text, const std::string& part);

}  // namespace dtorch::conformance
