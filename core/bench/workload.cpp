#include "core/bench/workload.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>
#include <vector>

#include "core/bench/pattern.h"
#include "core/bytes/data_type.h"

namespace dtorch::bench {
namespace {

// Buffer sets that take turns: as many as fill this, within the limits.
constexpr std::int64_t kRotatedBytes = 8 << 20;
constexpr std::int64_t kMostSets = 16;

/** What an operation's functions see. Count is the elements of the whole, chunk those of one rank's part of it. */
struct Context {
  ProcessGroup& group;
  Pattern pattern;
  ReduceOp op;
  std::int64_t count;
  std::int64_t chunk;
  int root;

  int rank() const { return group.rank(); }
  int world() const { return group.size(); }
  bool is_root() const { return rank() == root; }
  int left() const { return (rank() + world() - 1) % world(); }
  int right() const { return (rank() + 1) % world(); }
};

struct Buffers {
  at::Tensor input;   ///< undefined where this rank gives nothing
  at::Tensor output;  ///< undefined where it gets nothing
};

enum class Aliasing { none, same, input_in_output, output_in_input };

struct Operation {
  const char* name;
  OperationTraits traits;
  Aliasing aliasing;  ///< of an in-place call
  bool split;         ///< each rank has a part of the whole
  bool moves;         ///< elements, so that it needs some
  std::int64_t (*input_size)(const Context&);
  std::int64_t (*output_size)(const Context&);
  at::Tensor (*input)(const Context&);
  at::Tensor (*expected)(const Context&);  ///< undefined: this rank's output is not looked at
  void (*call)(const Context&, Buffers&);
};

std::int64_t none(const Context&) { return 0; }
std::int64_t whole(const Context& context) { return context.count; }
std::int64_t chunk(const Context& context) { return context.chunk; }
std::int64_t whole_on_root(const Context& context) { return context.is_root() ? context.count : 0; }

at::Tensor nothing(const Context&) { return {}; }
at::Tensor mine(const Context& context) { return context.pattern.part(context.rank(), 0, context.count); }
at::Tensor my_chunk(const Context& context) { return context.pattern.part(context.rank(), 0, context.chunk); }
at::Tensor whole_of_root(const Context& context) {
  return context.pattern.part(context.root, 0, context.count);
}
at::Tensor of_left(const Context& context) { return context.pattern.part(context.left(), 0, context.count); }
at::Tensor all_reduced(const Context& context) { return context.pattern.reduced(0, context.count); }
at::Tensor my_reduced(const Context& context) {
  return context.pattern.reduced(context.rank() * context.chunk, context.chunk);
}
at::Tensor chunk_of_root(const Context& context) {
  return context.pattern.part(context.root, context.rank() * context.chunk, context.chunk);
}

/** Every rank's part FIRST.., one after another. */
at::Tensor joined(const Context& context, std::int64_t first) {
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < context.world(); ++rank) {
    parts.push_back(context.pattern.part(rank, first, context.chunk));
  }
  return at::cat(parts);
}
at::Tensor gathered(const Context& context) { return joined(context, 0); }
at::Tensor gathered_on_root(const Context& context) {
  return context.is_root() ? gathered(context) : at::Tensor();
}
at::Tensor exchanged(const Context& context) { return joined(context, context.rank() * context.chunk); }
at::Tensor reduced_on_root(const Context& context) {
  return context.is_root() ? all_reduced(context) : at::Tensor();
}

/** These have one tensor for both: out of place, the caller copies first. */
at::Tensor& in_output(Buffers& buffers) {
  if (!buffers.output.is_same(buffers.input)) buffers.output.copy_(buffers.input);
  return buffers.output;
}

std::vector<at::Tensor> parts_of(const at::Tensor& whole, std::int64_t chunk) {
  return whole.defined() ? whole.split(chunk) : std::vector<at::Tensor>();
}

void call_all_reduce(const Context& c, Buffers& b) { c.group.all_reduce(in_output(b), c.op)->wait(); }
void call_reduce(const Context& c, Buffers& b) { c.group.reduce(in_output(b), c.root, c.op)->wait(); }
void call_broadcast(const Context& c, Buffers& b) { c.group.broadcast(in_output(b), c.root)->wait(); }
void call_all_gather(const Context& c, Buffers& b) {
  c.group.all_gather_into_tensor(b.output, b.input)->wait();
}
void call_reduce_scatter(const Context& c, Buffers& b) {
  c.group.reduce_scatter_tensor(b.output, b.input, c.op)->wait();
}
void call_all_to_all(const Context& c, Buffers& b) { c.group.all_to_all_single(b.output, b.input)->wait(); }
void call_gather(const Context& c, Buffers& b) {
  auto outputs = parts_of(b.output, c.chunk);
  c.group.gather(outputs, b.input, c.root)->wait();
}
void call_scatter(const Context& c, Buffers& b) {
  c.group.scatter(b.output, parts_of(b.input, c.chunk), c.root)->wait();
}
void call_send_recv(const Context& c, Buffers& b) {
  const auto sent = c.group.send(b.input, c.right());
  c.group.recv(b.output, c.left())->wait();
  sent->wait();
}
void call_barrier(const Context& c, Buffers&) { c.group.barrier()->wait(); }

const std::array kOperations{
    Operation{"allreduce",
              {true, false, true},
              Aliasing::same,
              false,
              true,
              whole,
              whole,
              mine,
              all_reduced,
              call_all_reduce},
    Operation{"allgather",
              {false, false, true},
              Aliasing::input_in_output,
              true,
              true,
              chunk,
              whole,
              my_chunk,
              gathered,
              call_all_gather},
    Operation{"reducescatter",
              {true, false, true},
              Aliasing::output_in_input,
              true,
              true,
              whole,
              chunk,
              mine,
              my_reduced,
              call_reduce_scatter},
    Operation{"broadcast",
              {false, true, true},
              Aliasing::same,
              false,
              true,
              whole,
              whole,
              mine,
              whole_of_root,
              call_broadcast},
    Operation{"reduce",
              {true, true, true},
              Aliasing::same,
              false,
              true,
              whole,
              whole,
              mine,
              reduced_on_root,
              call_reduce},
    Operation{"alltoall",
              {false, false, false},
              Aliasing::none,
              true,
              true,
              whole,
              whole,
              mine,
              exchanged,
              call_all_to_all},
    Operation{"gather",
              {false, true, false},
              Aliasing::none,
              true,
              true,
              chunk,
              whole_on_root,
              my_chunk,
              gathered_on_root,
              call_gather},
    Operation{"scatter",
              {false, true, false},
              Aliasing::none,
              true,
              true,
              whole_on_root,
              chunk,
              mine,
              chunk_of_root,
              call_scatter},
    Operation{"sendrecv",
              {false, false, false},
              Aliasing::none,
              false,
              true,
              whole,
              whole,
              mine,
              of_left,
              call_send_recv},
    Operation{"barrier",
              {false, false, false},
              Aliasing::none,
              false,
              false,
              none,
              none,
              nothing,
              nothing,
              call_barrier},
};

const Operation& operation_named(const std::string& name) {
  const auto found = std::find_if(kOperations.begin(), kOperations.end(),
                                  [&](const Operation& operation) { return operation.name == name; });
  if (found == kOperations.end())
    throw Error(ErrorKind::usage, fmt::format("no collective is named '{}'", name));
  return *found;
}

/** The one of these values that is written so; `what` is for the message. */
template <typename T>
T value_named(std::initializer_list<T> values, const std::string& name, const char* what) {
  const auto found =
      std::find_if(values.begin(), values.end(), [&](T value) { return to_string(value) == name; });
  if (found == values.end()) throw Error(ErrorKind::usage, fmt::format("no {} is named '{}'", what, name));
  return *found;
}

at::ScalarType scalar_type(const std::string& name) {
  return static_cast<at::ScalarType>(
      value_named({DataType::float32, DataType::float64, DataType::float16, DataType::bfloat16,
                   DataType::int8, DataType::int32, DataType::int64, DataType::uint8, DataType::boolean},
                  name, "type"));
}

ReduceOp reduce_op(const std::string& name) {
  return value_named({ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max, ReduceOp::avg,
                      ReduceOp::band, ReduceOp::bor, ReduceOp::bxor},
                     name, "reduction");
}

class BufferedWorkload : public Workload {
 public:
  BufferedWorkload(const Operation& operation, const Context& context, const WorkloadSettings& settings)
      : operation_(operation), context_(context), settings_(settings), source_(operation.input(context)) {
    if (operation_.input_size(context_) == 0) source_.reset();
    const std::int64_t bytes = std::max<std::int64_t>(settings.bytes, 1);
    const auto sets = std::clamp<std::int64_t>(kRotatedBytes / bytes, 1, kMostSets);
    for (std::int64_t set = 0; set < sets; ++set) sets_.push_back(make_buffers());
  }

  std::int64_t elements() const override { return context_.count; }
  std::int64_t bytes() const override {
    return elements() * static_cast<std::int64_t>(at::elementSize(scalar_type(settings_.type)));
  }
  bool in_backend_memory() const override { return in_backend_memory_; }

  void rewrite() override {
    current_ = (current_ + 1) % sets_.size();
    Buffers& buffers = sets_[current_];
    if (buffers.output.defined() && !buffers.output.is_same(buffers.input)) buffers.output.fill_(1);
    if (source_.defined()) buffers.input.copy_(source_);
  }

  void call() override { operation_.call(context_, sets_[current_]); }

  std::int64_t wrong() const override {
    const at::Tensor expected = operation_.expected(context_);
    if (!expected.defined()) return 0;
    return sets_[current_].output.ne(expected).sum().item<std::int64_t>();
  }

 private:
  at::Tensor make_tensor(std::int64_t elements) {
    if (elements == 0) return {};
    const at::ScalarType type = scalar_type(settings_.type);
    if (settings_.backend_memory) {
      const auto memory = context_.group.allocate(static_cast<std::size_t>(elements) * at::elementSize(type));
      if (memory) {
        in_backend_memory_ = true;
        return at::from_blob(
            memory.get(), {elements}, [memory](void*) {}, type);
      }
    }
    return at::zeros({elements}, type);
  }

  Buffers make_buffers() {
    const std::int64_t in = operation_.input_size(context_);
    const std::int64_t out = operation_.output_size(context_);
    const std::int64_t offset = context_.rank() * context_.chunk;
    Buffers buffers;
    switch (settings_.in_place ? operation_.aliasing : Aliasing::none) {
      case Aliasing::none:
        buffers.input = make_tensor(in);
        buffers.output = make_tensor(out);
        break;
      case Aliasing::same: buffers.input = buffers.output = make_tensor(out); break;
      case Aliasing::input_in_output:
        buffers.output = make_tensor(out);
        buffers.input = buffers.output.narrow(0, offset, in);
        break;
      case Aliasing::output_in_input:
        buffers.input = make_tensor(in);
        buffers.output = buffers.input.narrow(0, offset, out);
        break;
    }
    return buffers;
  }

  const Operation& operation_;
  Context context_;
  WorkloadSettings settings_;
  at::Tensor source_;
  std::vector<Buffers> sets_;
  std::size_t current_ = 0;
  bool in_backend_memory_ = false;
};

}  // namespace

OperationTraits traits_of(const std::string& operation) { return operation_named(operation).traits; }

std::unique_ptr<Workload> make_workload(ProcessGroup& group, const WorkloadSettings& settings) {
  const Operation& operation = operation_named(settings.operation);
  const at::ScalarType type = scalar_type(settings.type);
  const ReduceOp op = reduce_op(settings.reduction);
  const std::int64_t fitting = settings.bytes / static_cast<std::int64_t>(at::elementSize(type));
  const std::int64_t chunk = fitting / group.size();
  const std::int64_t count = operation.split ? chunk * group.size() : fitting;
  const Context context{group, Pattern(type, op, group.size()), op, count, chunk, settings.root};
  if (operation.moves && count == 0) return nullptr;
  return std::make_unique<BufferedWorkload>(operation, context, settings);
}

}  // namespace dtorch::bench
