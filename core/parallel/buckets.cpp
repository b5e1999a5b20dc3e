#include "core/parallel/buckets.h"

#include <map>
#include <utility>

namespace dtorch {
namespace {

constexpr std::int64_t kCacheLine = 64;

struct OpenBucket {
  BucketPlan plan;
  std::int64_t bytes = 0;  // without padding: what the caps are about
  std::int64_t cap = 0;
};

void add(OpenBucket& bucket, std::size_t parameter, const GradientShape& shape) {
  const auto line = kCacheLine / shape.element_size;
  auto& plan = bucket.plan;
  const auto offset = (plan.elements + line - 1) / line * line;
  plan.parameters.push_back(parameter);
  plan.offsets.push_back(offset);
  plan.elements = offset + shape.elements;
  bucket.bytes += shape.elements * shape.element_size;
}

}  // namespace

std::vector<BucketPlan> plan_buckets(std::span<const GradientShape> shapes, std::int64_t first_cap,
                                     std::int64_t cap) {
  std::map<std::size_t, BucketPlan> closed;  // by the last parameter to arrive: the smallest index
  std::map<int, OpenBucket> open;
  for (std::size_t i = shapes.size(); i-- > 0;) {
    auto& bucket = open.try_emplace(shapes[i].kind, OpenBucket{{}, 0, first_cap}).first->second;
    add(bucket, i, shapes[i]);
    if (bucket.bytes >= bucket.cap) {
      closed.emplace(i, std::move(bucket.plan));
      bucket = OpenBucket{{}, 0, cap};
    }
  }
  for (auto& [kind, bucket] : open) {
    if (bucket.plan.parameters.empty()) continue;
    const auto last = bucket.plan.parameters.back();
    closed.emplace(last, std::move(bucket.plan));
  }
  std::vector<BucketPlan> plans;
  plans.reserve(closed.size());
  for (auto it = closed.rbegin(); it != closed.rend(); ++it) plans.push_back(std::move(it->second));
  return plans;
}

}  // namespace dtorch
