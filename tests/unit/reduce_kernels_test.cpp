// The reductions of collectives at every level of vector instructions, 16-bit floats against PyTorch's.
#include "core/bytes/reduce_kernels.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "core/bytes/half.h"
#include "core/bytes/reduce_level.h"

namespace dtorch {
namespace {

struct Conversion {
  std::uint32_t value;
  std::uint16_t half;
  std::uint16_t brain;
};
// torch.tensor(v).half(), .bfloat16() of PyTorch 2.11, as bits: rounding up, down and to even, subnormals, overflow.
constexpr std::array kConversions = std::to_array<Conversion>({
    {0x00000000, 0x0000, 0x0000}, {0x80000000, 0x8000, 0x8000}, {0x3f800000, 0x3c00, 0x3f80},
    {0x477fe000, 0x7bff, 0x4780}, {0x477fefff, 0x7bff, 0x4780}, {0x477ff000, 0x7c00, 0x4780},
    {0xc77ff000, 0xfc00, 0xc780}, {0x322bcc77, 0x0000, 0x322c}, {0x33800000, 0x0001, 0x3380},
    {0x33000000, 0x0000, 0x3300}, {0x33000001, 0x0001, 0x3300}, {0x387fda40, 0x03ff, 0x3880},
    {0x387fc000, 0x03ff, 0x3880}, {0x3f802000, 0x3c01, 0x3f80}, {0x3f801000, 0x3c00, 0x3f80},
    {0x3f803000, 0x3c02, 0x3f80}, {0x7f7e486f, 0x7c00, 0x7f7e}, {0x7f7f8000, 0x7c00, 0x7f80},
    {0x7f800000, 0x7c00, 0x7f80}, {0xff800000, 0xfc00, 0xff80}, {0x3f808000, 0x3c04, 0x3f80},
    {0x3f818000, 0x3c0c, 0x3f82}, {0xc0004000, 0xc002, 0xc000}, {0xba48eb1d, 0x9247, 0xba49},
    {0x39bcae7b, 0x0de5, 0x39bd}, {0xb703335e, 0x8083, 0xb703}, {0x40e4e385, 0x4727, 0x40e5},
    {0x358c6512, 0x0012, 0x358c}, {0x3d55e346, 0x2aaf, 0x3d56}, {0xbfd58406, 0xbeac, 0xbfd6},
    {0x36b1f358, 0x0059, 0x36b2}, {0x43ca4db7, 0x5e52, 0x43ca}, {0x388032e6, 0x0402, 0x3880},
    {0x3a4754f0, 0x123b, 0x3a47}, {0xc3a83760, 0xdd42, 0xc3a8}, {0x42c795a1, 0x563d, 0x42c8},
    {0x38409820, 0x0302, 0x3841}, {0x46be57f1, 0x75f3, 0x46be}, {0xb919f085, 0x88d0, 0xb91a},
    {0x350238c8, 0x0008, 0x3502}, {0x32b04b84, 0x0000, 0x32b0}, {0x36631d86, 0x0039, 0x3663},
    {0x35b59046, 0x0017, 0x35b6},
});

struct Sum {
  std::array<std::uint16_t, 3> parts;
  std::uint16_t sum;
  std::uint16_t average;
};
// ((a.float() + b.float()) + c.float()).to(dtype), and divided by 3 before it is rounded, of PyTorch 2.11.
constexpr std::array kHalves = std::to_array<Sum>({
    {{0x1e59, 0xbfd1, 0xb7f1}, 0xc0e3, 0xba85},
    {{0x24e4, 0xd7a3, 0x9e29}, 0xd7a3, 0xd117},
    {{0xd8ee, 0xb549, 0xd1f8}, 0xda6f, 0xd44a},
    {{0x1d31, 0xa96e, 0xa7a6}, 0xac4d, 0xa5bd},
    {{0x2532, 0x39cc, 0xb2b0}, 0x384a, 0x31b7},
    {{0xb28b, 0x56bf, 0xc239}, 0x568a, 0x505c},
    {{0xd127, 0x246e, 0xb6d1}, 0xd134, 0xcaf0},
    {{0x2c66, 0xcb5b, 0x22d5}, 0xcb50, 0xc4e0},
    {{0x53cc, 0xa885, 0x9ab9}, 0x53cb, 0x4d32},
    {{0x5726, 0xc832, 0x5911}, 0x5c30, 0x5596},
    {{0x94f9, 0xa250, 0x484c}, 0x484a, 0x41b8},
    {{0x4644, 0xd441, 0x545f}, 0x4812, 0x416d},
});
constexpr std::array kBrains = std::to_array<Sum>({
    {{0xc29f, 0xc13a, 0x3b2a}, 0xc2b6, 0xc1f3},
    {{0x4129, 0xbcfb, 0xbfa0}, 0x4115, 0x4046},
    {{0x4301, 0xc220, 0xbf1e}, 0x42b1, 0x41ec},
    {{0x3fcd, 0x3e8a, 0x400a}, 0x4081, 0x3fac},
    {{0x42ec, 0xbb96, 0x3bd0}, 0x42ec, 0x421d},
    {{0xc036, 0xc2ad, 0xbe82}, 0xc2b3, 0xc1ef},
    {{0xbb80, 0xc164, 0xbeab}, 0xc169, 0xc09c},
    {{0xc2f7, 0xbe14, 0x3ffe}, 0xc2f3, 0xc222},
    {{0xc083, 0x3e68, 0x3fa5}, 0xc025, 0xbf5c},
    {{0xbd10, 0xc14e, 0xbeda}, 0xc155, 0xc08e},
    {{0xc0aa, 0x4017, 0xbe08}, 0xc046, 0xbf84},
    {{0x3bfe, 0x3e1a, 0xc338}, 0xc338, 0xc275},
});

/** The levels that this processor runs. */
std::vector<ReduceLevel> levels() {
  std::vector<ReduceLevel> all{baseline_reduce()};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) all.push_back(avx2_reduce());
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    all.push_back(avx512_reduce());
#endif
  return all;
}

TEST(ReduceLevelsTest, SixteenBitFloatsRoundAsPyTorchDoes) {
  for (const auto& [value, half, brain] : kConversions) {
    EXPECT_EQ(to_float16(std::bit_cast<float>(value)), half) << std::hex << value;
    EXPECT_EQ(to_bfloat16(std::bit_cast<float>(value)), brain) << std::hex << value;
  }
}

template <std::size_t N>
void expect_sums(DataType type, const std::array<Sum, N>& sums) {
  // Repeated, so that whole vectors and the rest of a row are met.
  constexpr std::size_t kCount = 4099;
  std::array<std::vector<std::uint16_t>, 3> rows;
  for (std::size_t part = 0; part < rows.size(); ++part) {
    for (std::size_t i = 0; i < kCount; ++i) rows[part].push_back(sums[i % N].parts[part]);
  }
  const std::array<const void*, 3> parts{rows[0].data(), rows[1].data(), rows[2].data()};
  std::vector<std::uint16_t> result(kCount);
  for (const auto& level : levels()) {
    ASSERT_TRUE(level.parts(result.data(), parts.data(), parts.size(), kCount, type, ReduceOp::sum));
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(result[i], sums[i % N].sum) << i;
    ASSERT_TRUE(level.parts(result.data(), parts.data(), parts.size(), kCount, type, ReduceOp::avg));
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(result[i], sums[i % N].average) << i;
  }
}

TEST(ReduceLevelsTest, SixteenBitFloatsAreSummedInFloat32AndRoundedOnce) {
  expect_sums(DataType::float16, kHalves);
  expect_sums(DataType::bfloat16, kBrains);
}

TEST(ReduceLevelsTest, TheResultMayBeAnyOfManyParts) {
  constexpr std::size_t kCount = 3001;
  for (const auto& level : levels()) {
    for (const std::size_t ranks : {1U, 2U, 3U, 8U, 64U}) {
      for (std::size_t target = 0; target < ranks; target += ranks / 3 + 1) {
        std::vector<std::vector<float>> rows(ranks, std::vector<float>(kCount));
        std::vector<const void*> parts;
        std::vector<float> expected(kCount);
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          for (std::size_t i = 0; i < kCount; ++i) {
            rows[rank][i] = 1.0F / static_cast<float>(1 + (i * 31 + rank * 17) % 101);
            expected[i] = rank == 0 ? rows[rank][i] : expected[i] + rows[rank][i];
          }
          parts.push_back(rows[rank].data());
        }
        ASSERT_TRUE(
            level.parts(rows[target].data(), parts.data(), ranks, kCount, DataType::float32, ReduceOp::sum));
        EXPECT_EQ(rows[target], expected) << ranks << " parts into " << target;
      }
    }
  }
}

}  // namespace
}  // namespace dtorch
