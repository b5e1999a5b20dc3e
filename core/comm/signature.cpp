#include "core/comm/signature.h"

#include <c10/core/ScalarType.h>
#include <fmt/format.h>

#include <array>

namespace dtorch {
namespace {

constexpr std::array<std::string_view, 11> kOperations{
    "all_reduce",     "reduce",     "broadcast", "all_gather", "gather", "scatter",
    "reduce_scatter", "all_to_all", "barrier",   "send",       "recv"};
constexpr std::array<std::string_view, 8> kReduceOps{"sum", "product", "min", "max",
                                                     "avg", "band",    "bor", "bxor"};

template <std::size_t N>
std::string_view name_at(const std::array<std::string_view, N>& names, std::size_t index) {
  return index < N ? names[index] : "unknown";
}

std::string_view dtype_name(std::int8_t dtype) {
  switch (static_cast<c10::ScalarType>(dtype)) {
    case c10::ScalarType::Half: return "float16";
    case c10::ScalarType::BFloat16: return "bfloat16";
    case c10::ScalarType::Float: return "float32";
    case c10::ScalarType::Double: return "float64";
    case c10::ScalarType::Char: return "int8";
    case c10::ScalarType::Int: return "int32";
    case c10::ScalarType::Long: return "int64";
    case c10::ScalarType::Byte: return "uint8";
    case c10::ScalarType::Bool: return "bool";
    default: return "unknown";
  }
}

std::string_view root_word(Operation operation) {
  switch (operation) {
    case Operation::reduce:
    case Operation::gather:
    case Operation::send: return "to";
    default: return "from";
  }
}

}  // namespace

std::string_view to_string(Operation operation) {
  return name_at(kOperations, static_cast<std::size_t>(operation));
}
std::string_view to_string(ReduceOp op) { return name_at(kReduceOps, static_cast<std::size_t>(op)); }

std::string describe(const CallSignature& signature) {
  std::string text(to_string(signature.operation));
  if (signature.root >= 0) text += fmt::format(" {} {}", root_word(signature.operation), signature.root);
  if (signature.reduce >= 0)
    text += fmt::format(" {}", name_at(kReduceOps, static_cast<std::size_t>(signature.reduce)));
  if (signature.dtype >= 0) text += fmt::format(" {}[{}]", dtype_name(signature.dtype), signature.count);
  return text;
}

bool agree(const CallSignature& mine, const CallSignature& theirs) {
  if (mine.sequence != theirs.sequence || mine.operation != theirs.operation ||
      mine.reduce != theirs.reduce || mine.dtype != theirs.dtype || mine.root != theirs.root ||
      mine.detail != theirs.detail) {
    return false;
  }
  if (mine.operation == Operation::all_to_all) {
    return mine.to_peer == theirs.from_peer && mine.from_peer == theirs.to_peer;
  }
  return mine.count == theirs.count;
}

std::string disagreement(int my_rank, const CallSignature& mine, int their_rank,
                         const CallSignature& theirs) {
  std::string text =
      fmt::format("ranks call different collectives: rank {} called {} (#{}), rank {} called {} (#{})",
                  my_rank, describe(mine), mine.sequence, their_rank, describe(theirs), theirs.sequence);
  if (mine.operation == Operation::all_to_all && theirs.operation == Operation::all_to_all) {
    text += fmt::format(
        "; rank {} sends {} elements to rank {}, which expects {}, and expects {} of it, which sends {}",
        my_rank, mine.to_peer, their_rank, theirs.from_peer, mine.from_peer, theirs.to_peer);
  } else if (mine.detail != theirs.detail && describe(mine) == describe(theirs)) {
    text += "; the sizes of the tensors differ";
  }
  return text;
}

}  // namespace dtorch
