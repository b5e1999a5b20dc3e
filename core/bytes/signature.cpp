#include "core/bytes/signature.h"

#include <fmt/format.h>

#include <array>

#include "core/bytes/data_type.h"

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
std::string_view to_string(DataType type) {
  switch (type) {
    case DataType::float16: return "float16";
    case DataType::bfloat16: return "bfloat16";
    case DataType::float32: return "float32";
    case DataType::float64: return "float64";
    case DataType::int8: return "int8";
    case DataType::int32: return "int32";
    case DataType::int64: return "int64";
    case DataType::uint8: return "uint8";
    case DataType::boolean: return "bool";
  }
  return "unknown";
}
std::string_view to_string(ReduceOp op) { return name_at(kReduceOps, static_cast<std::size_t>(op)); }

std::string describe(const CallSignature& signature) {
  std::string text(to_string(signature.operation));
  if (signature.root >= 0) text += fmt::format(" {} {}", root_word(signature.operation), signature.root);
  if (signature.reduce >= 0)
    text += fmt::format(" {}", name_at(kReduceOps, static_cast<std::size_t>(signature.reduce)));
  if (signature.dtype >= 0)
    text += fmt::format(" {}[{}]", to_string(static_cast<DataType>(signature.dtype)), signature.count);
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
