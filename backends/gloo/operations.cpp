// The operations of the gloo backend: Gloo's own algorithms, and direct exchange where that is better.
#include <ATen/ATen.h>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/reduce.h>
#include <gloo/scatter.h>

#include "backends/gloo/backend.h"
#include "backends/gloo/exchange.h"
#include "backends/gloo/reduction.h"

namespace dtorch::gloo_backend {
namespace {

// Up to this many bytes from all peers together, one round of whole vectors beats the ring's 4 (n - 1)
// messages.
constexpr std::size_t kDirectLimit = 128 << 10;

std::size_t bytes_of(const at::Tensor& tensor) { return static_cast<std::size_t>(tensor.nbytes()); }

/** What all of Gloo's options have in common. */
template <typename Options>
void prepare(Options& options, const Call& call) {
  options.setTag(static_cast<std::uint32_t>(call.signature.sequence));
  options.setTimeout(gloo_timeout(call.deadline));
}

/** Gloo asks for a type only to count elements; data moves as bytes. */
auto buffer(MeshContext& context, const at::Tensor& tensor) {
  return context.createUnboundBuffer(tensor.mutable_data_ptr(), bytes_of(tensor));
}

std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> single(
    std::unique_ptr<gloo::transport::UnboundBuffer> one) {
  std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> all;
  all.push_back(std::move(one));
  return all;
}

void set_typed_output(gloo::AllreduceOptions& options, std::unique_ptr<gloo::transport::UnboundBuffer> out,
                      std::size_t element_size) {
  switch (element_size) {
    case 1: return options.setOutputs<std::uint8_t>(single(std::move(out)));
    case 4: return options.setOutputs<std::uint32_t>(single(std::move(out)));
    default: return options.setOutputs<std::uint64_t>(single(std::move(out)));
  }
}

void set_typed_output(gloo::ReduceOptions& options, std::unique_ptr<gloo::transport::UnboundBuffer> out,
                      std::size_t element_size) {
  switch (element_size) {
    case 1: return options.setOutput<std::uint8_t>(std::move(out));
    case 4: return options.setOutput<std::uint32_t>(std::move(out));
    default: return options.setOutput<std::uint64_t>(std::move(out));
  }
}

/** Everyone's rows for everyone: row r of `parts` comes from rank r. `stride` 0 sends the whole of `input` to
 * each. */
void exchange_rows(MeshContext& context, const at::Tensor& parts, const at::Tensor& input, std::size_t stride,
                   const Call& call, Progress& progress) {
  const std::size_t bytes = bytes_of(parts) / static_cast<std::size_t>(context.size);
  const auto where = slot(SlotKind::exchange, call.signature.sequence);
  Exchange plan{where, where, input.const_data_ptr(), parts.mutable_data_ptr(), all_peers(context), {}, {}};
  for (const int peer : plan.peers) {
    plan.send_parts.push_back({static_cast<std::size_t>(peer) * stride, bytes});
    plan.recv_parts.push_back({static_cast<std::size_t>(peer) * bytes, bytes});
  }
  const auto me = static_cast<std::size_t>(context.rank);
  std::memcpy(static_cast<char*>(parts.mutable_data_ptr()) + me * bytes,
              static_cast<const char*>(input.const_data_ptr()) + me * stride, bytes);
  exchange(context, plan, call.deadline, progress);
}

}  // namespace

void GlooBackend::reduce_in_place(const at::Tensor& tensor, ReduceOp op, const Call& call,
                                  Progress& progress) {
  if (tensor.numel() == 0 || world_ == 1) return;
  if (bytes_of(tensor) * static_cast<std::size_t>(world_ - 1) <= kDirectLimit) {
    const at::Tensor parts = at::empty({world_, tensor.numel()}, tensor.options());
    exchange_rows(*context_, parts, tensor, 0, call, progress);
    reduce_rows(parts, op, tensor);
    return;
  }
  const at::Tensor wide = widened(tensor);
  gloo::AllreduceOptions options(context_);
  prepare(options, call);
  options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
  options.setReduceFunction(kernel_for(wide, op));
  set_typed_output(options, buffer(*context_, wide), wide.element_size());
  gloo::allreduce(options);
  if (op == ReduceOp::avg) wide.div_(static_cast<double>(world_));
  if (!wide.is_same(tensor)) tensor.copy_(wide);
}

WorkPtr GlooBackend::all_reduce(const at::Tensor& tensor, ReduceOp op, Call call) {
  return launch(std::move(call), [this, tensor, op](const Call& mine, Progress& progress) {
    reduce_in_place(tensor, op, mine, progress);
  });
}

WorkPtr GlooBackend::reduce(const at::Tensor& tensor, int root, ReduceOp op, Call call) {
  return launch(std::move(call), [this, tensor, root, op](const Call& mine, Progress&) {
    if (tensor.numel() == 0 || world_ == 1) return;
    // Gloo's reduction uses the buffers of all ranks as scratch; only the root's may change.
    const at::Tensor wide = widened(tensor);
    const at::Tensor out = rank_ != root && wide.is_same(tensor) ? wide.clone() : wide;
    gloo::ReduceOptions options(context_);
    prepare(options, mine);
    options.setRoot(root);
    options.setReduceFunction(kernel_for(out, op));
    set_typed_output(options, buffer(*context_, out), out.element_size());
    gloo::reduce(options);
    if (rank_ != root) return;
    if (op == ReduceOp::avg) out.div_(static_cast<double>(world_));
    if (!out.is_same(tensor)) tensor.copy_(out);
  });
}

WorkPtr GlooBackend::broadcast(const at::Tensor& tensor, int root, Call call) {
  return launch(std::move(call), [this, tensor, root](const Call& mine, Progress&) {
    if (tensor.numel() == 0 || world_ == 1) return;
    gloo::BroadcastOptions options(context_);
    prepare(options, mine);
    options.setRoot(root);
    options.setOutput<std::uint8_t>(buffer(*context_, tensor));
    gloo::broadcast(options);
  });
}

WorkPtr GlooBackend::all_gather(const at::Tensor& output, const at::Tensor& input, Call call) {
  return launch(std::move(call), [this, output, input](const Call& mine, Progress&) {
    if (output.numel() == 0) return;
    if (world_ == 1) {
      output.copy_(input.view_as(output));
      return;
    }
    gloo::AllgatherOptions options(context_);
    prepare(options, mine);
    options.setInput<std::uint8_t>(buffer(*context_, input));
    options.setOutput<std::uint8_t>(buffer(*context_, output));
    gloo::allgather(options);
  });
}

WorkPtr GlooBackend::gather(const at::Tensor& output, const at::Tensor& input, int root, Call call) {
  return launch(std::move(call), [this, output, input, root](const Call& mine, Progress&) {
    if (input.numel() == 0) return;
    if (world_ == 1) {
      output.copy_(input.view_as(output));
      return;
    }
    gloo::GatherOptions options(context_);
    prepare(options, mine);
    options.setRoot(root);
    options.setInput<std::uint8_t>(buffer(*context_, input));
    if (rank_ == root) options.setOutput<std::uint8_t>(buffer(*context_, output));
    gloo::gather(options);
  });
}

WorkPtr GlooBackend::scatter(const at::Tensor& output, const at::Tensor& input, int root, Call call) {
  return launch(std::move(call), [this, output, input, root](const Call& mine, Progress&) {
    if (output.numel() == 0) return;
    if (world_ == 1) {
      output.copy_(input.view_as(output));
      return;
    }
    gloo::ScatterOptions options(context_);
    prepare(options, mine);
    options.setRoot(root);
    options.setOutput<std::uint8_t>(buffer(*context_, output));
    if (rank_ == root) {
      const at::Tensor rows = input.view({world_, output.numel()});
      std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> inputs;
      for (int rank = 0; rank < world_; ++rank) inputs.push_back(buffer(*context_, rows[rank]));
      options.setInputs<std::uint8_t>(std::move(inputs));
    }
    gloo::scatter(options);
  });
}

WorkPtr GlooBackend::reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op,
                                    Call call) {
  return launch(std::move(call), [this, output, input, op](const Call& mine, Progress& progress) {
    if (output.numel() == 0) return;
    const at::Tensor parts =
        world_ == 1 ? input.view({1, output.numel()}) : at::empty({world_, output.numel()}, output.options());
    if (world_ > 1) exchange_rows(*context_, parts, input, bytes_of(output), mine, progress);
    reduce_rows(parts, op, output);
  });
}

WorkPtr GlooBackend::all_to_all(const at::Tensor& output, const at::Tensor& input,
                                std::span<const std::int64_t> output_counts,
                                std::span<const std::int64_t> input_counts, Call call) {
  Counts outputs(output_counts.begin(), output_counts.end());
  Counts inputs(input_counts.begin(), input_counts.end());
  auto body = [this, output, input, outputs, inputs](const Call& mine, Progress&) {
    if (world_ == 1) {
      output.copy_(input.view_as(output));
      return;
    }
    const auto in_bytes = [size = static_cast<std::int64_t>(input.element_size())](Counts counts) {
      for (auto& count : counts) count *= size;
      return counts;
    };
    gloo::AlltoallvOptions options(context_);
    prepare(options, mine);
    options.setInput<std::uint8_t>(buffer(*context_, input), in_bytes(inputs));
    options.setOutput<std::uint8_t>(buffer(*context_, output), in_bytes(outputs));
    gloo::alltoallv(options);
  };
  return launch(std::move(call), std::move(body), outputs, inputs);
}

WorkPtr GlooBackend::barrier(Call call) {
  return launch(std::move(call), [this](const Call& mine, Progress&) {
    // The round of agreement is a barrier already; Gloo's is for calls without one.
    if (world_ == 1 || !mine.agreed) return;
    gloo::BarrierOptions options(context_);
    prepare(options, mine);
    gloo::barrier(options);
  });
}

WorkPtr GlooBackend::point_to_point(const at::Tensor& tensor, int peer, int tag, Call call) {
  auto job = [this, tensor, peer, tag, call](Progress& progress) {
    guarded(call, progress, [&] {
      const bool sends = call.signature.operation == Operation::send;
      const auto mine = call.signature;
      CallSignature theirs;
      const auto number = static_cast<std::uint32_t>(tag);
      const auto to = slot(sends ? SlotKind::send_header : SlotKind::recv_header, number);
      const auto from = slot(sends ? SlotKind::recv_header : SlotKind::send_header, number);
      const std::vector<Part> part{{0, sizeof(CallSignature)}};
      exchange(*context_, {to, from, &mine, &theirs, {peer}, part, part}, call.deadline, progress);
      if (mine.count != theirs.count || mine.dtype != theirs.dtype) {
        throw PeerError(ErrorKind::disagree, disagreement(rank_, mine, peer, theirs), {peer},
                        "the tensors of a send and its receive must have equal types and sizes");
      }
      const auto data = buffer(*context_, tensor);
      const auto timeout = gloo_timeout(call.deadline);
      if (sends) {
        data->send(peer, slot(SlotKind::data, number));
        data->waitSend(timeout);
      } else {
        data->recv(peer, slot(SlotKind::data, number));
        data->waitRecv(timeout);
      }
      if (call.finish) call.finish();
    });
  };
  return lanes_.push(peer, call.signature.operation, tag, std::move(job));
}

}  // namespace dtorch::gloo_backend
