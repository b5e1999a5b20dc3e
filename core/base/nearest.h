// "Did you mean": the nearest of the right words.
#pragma once
#include <cstddef>
#include <span>
#include <string_view>

namespace dtorch {

/** Edits (insert, delete, replace, swap neighbours) from one word to the other. */
std::size_t edit_distance(std::string_view a, std::string_view b);
/** The candidate nearest to WORD if it is near enough to be meant; empty otherwise. Case and '-' for '_' cost
 * nothing. */
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace dtorch
