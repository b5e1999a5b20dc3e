// Durations and sizes as people write them: `30s`, `500ms`, `2min`, `1h`; `25MiB`, `512KiB`, `1GB`.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dtorch {

/**
 * A duration: a number (a fraction is allowed) directly followed by ms, s, min or h. Nothing when the text is
 * not one, is negative, is no whole number of milliseconds, or is above 10 years.
 */
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);
/** The shortest text that parse_duration reads back to the same value: 90s, 2min, 1500ms. */
std::string duration_text(std::chrono::milliseconds duration);

/**
 * A size in bytes: a number (a fraction is allowed) directly followed by B, KiB, MiB, GiB, TiB (powers of
 * 1024) or kB, MB, GB, TB (powers of 1000). Nothing when the text is not one, is negative, or is no whole
 * number of bytes.
 */
std::optional<std::int64_t> parse_size(std::string_view text);
/** The same, and as nccl-tests writes sizes: a number alone is bytes; K, M and G are powers of 1024. */
std::optional<std::int64_t> parse_binary_size(std::string_view text);
/** The shortest text that parse_size reads back to the same value, with powers of 1024: 25MiB, 1000B. */
std::string size_text(std::int64_t bytes);

/** For people, rounded to three figures or so, 8 characters at most: "850 ms", "42.0 s", "3m 05s", "2h 07m",
 * "12d 03h". */
std::string human_duration(double seconds);
/** For people, 8 characters at most: "512 B", "1.5 MiB", "118 MiB". */
std::string human_size(std::uint64_t bytes);
/** For people, 6 characters at most: "950", "46.1k", "1.20M"; "-" when it is not finite. */
std::string human_count(double count);

}  // namespace dtorch
