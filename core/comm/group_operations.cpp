// The collectives of a ProcessGroup: arguments are checked, made contiguous, described for agreement and
// handed on.
#include <cstring>

#include "core/comm/group_state.h"
#include "core/comm/staging.h"

namespace dtorch {
namespace {

CallSignature signature_of(Operation operation, int root = -1) {
  CallSignature signature;
  signature.operation = operation;
  signature.root = root;
  return signature;
}

CallSignature signature_of(Operation operation, ReduceOp op, int root = -1) {
  CallSignature signature = signature_of(operation, root);
  signature.reduce = static_cast<std::int8_t>(op);
  return signature;
}

WorkPtr start_all_reduce(ProcessGroup::Impl& group, const at::Tensor& tensor, ReduceOp op, bool agreed) {
  const auto check = group.checking("all_reduce");
  check_output(check, tensor, "tensor");
  check_reduce(check, tensor, op);
  auto staged = stage_in_place(tensor);
  return group.launch(
      signature_of(Operation::all_reduce, op), staged.tensor,
      [&](Call call) { return group.backend->all_reduce(staged.tensor, op, std::move(call)); }, staged.finish,
      agreed);
}

WorkPtr start_reduce_scatter(ProcessGroup::Impl& group, const at::Tensor& output, const at::Tensor& input,
                             ReduceOp op, bool agreed) {
  const auto check = group.checking("reduce_scatter_tensor");
  check_output(check, output, "output");
  check_tensor(check, input, "input");
  check_parts(check, input, output);
  check_reduce(check, output, op);
  const auto in = stage_input(input);
  auto out = stage_output(output);
  return group.launch(
      signature_of(Operation::reduce_scatter, op), out.tensor,
      [&](Call call) { return group.backend->reduce_scatter(out.tensor, in, op, std::move(call)); },
      out.finish, agreed);
}

}  // namespace

WorkPtr ProcessGroup::all_reduce(at::Tensor& tensor, ReduceOp op) {
  return start_all_reduce(*impl_, tensor, op, false);
}

WorkPtr ProcessGroup::all_reduce_agreed(at::Tensor& tensor, ReduceOp op) {
  return start_all_reduce(*impl_, tensor, op, true);
}

WorkPtr ProcessGroup::all_reduce_coalesced(std::vector<at::Tensor>& tensors, ReduceOp op) {
  const auto check = impl_->checking("all_reduce_coalesced");
  if (tensors.empty()) throw Error(ErrorKind::usage, "all_reduce_coalesced: no tensors");
  for (const auto& tensor : tensors) {
    check_output(check, tensor, "tensor");
    check_same_dtype(check, tensor, tensors.front());
  }
  check_reduce(check, tensors.front(), op);
  auto staged = stage_coalesced(tensors);
  auto signature = signature_of(Operation::all_reduce, op);
  signature.detail = hash_of_sizes(tensors);
  return impl_->launch(
      signature, staged.tensor,
      [&](Call call) { return impl_->backend->all_reduce(staged.tensor, op, std::move(call)); },
      staged.finish);
}

WorkPtr ProcessGroup::reduce(at::Tensor& tensor, int root, ReduceOp op) {
  const auto check = impl_->checking("reduce");
  check_output(check, tensor, "tensor");
  check_reduce(check, tensor, op);
  check_rank(check, root, "root");
  auto staged = stage_in_place(tensor);
  if (rank() != root) staged.finish = nullptr;
  return impl_->launch(
      signature_of(Operation::reduce, op, root), staged.tensor,
      [&](Call call) { return impl_->backend->reduce(staged.tensor, root, op, std::move(call)); },
      staged.finish);
}

WorkPtr ProcessGroup::broadcast(at::Tensor& tensor, int root) {
  const auto check = impl_->checking("broadcast");
  check_output(check, tensor, "tensor");
  check_rank(check, root, "root");
  auto staged = stage_in_place(tensor);
  if (rank() == root) staged.finish = nullptr;
  return impl_->launch(
      signature_of(Operation::broadcast, root), staged.tensor,
      [&](Call call) { return impl_->backend->broadcast(staged.tensor, root, std::move(call)); },
      staged.finish);
}

WorkPtr ProcessGroup::all_gather(std::vector<at::Tensor>& outputs, const at::Tensor& input) {
  const auto check = impl_->checking("all_gather");
  check_tensor(check, input, "input");
  check_outputs(check, outputs, input);
  const auto in = stage_input(input);
  auto out = stage_outputs(outputs, input);
  return impl_->launch(
      signature_of(Operation::all_gather), in,
      [&](Call call) { return impl_->backend->all_gather(out.tensor, in, std::move(call)); }, out.finish);
}

WorkPtr ProcessGroup::all_gather_into_tensor(at::Tensor& output, const at::Tensor& input) {
  const auto check = impl_->checking("all_gather_into_tensor");
  check_tensor(check, input, "input");
  check_output(check, output, "output");
  check_parts(check, output, input);
  const auto in = stage_input(input);
  auto out = stage_output(output);
  return impl_->launch(
      signature_of(Operation::all_gather), in,
      [&](Call call) { return impl_->backend->all_gather(out.tensor, in, std::move(call)); }, out.finish);
}

WorkPtr ProcessGroup::gather(std::vector<at::Tensor>& outputs, const at::Tensor& input, int root) {
  const auto check = impl_->checking("gather");
  check_tensor(check, input, "input");
  check_rank(check, root, "root");
  Staged out;
  if (rank() == root) {
    check_outputs(check, outputs, input);
    out = stage_outputs(outputs, input);
  } else {
    check_list_absent(check, outputs, "outputs");
  }
  const auto in = stage_input(input);
  return impl_->launch(
      signature_of(Operation::gather, root), in,
      [&](Call call) { return impl_->backend->gather(out.tensor, in, root, std::move(call)); }, out.finish);
}

WorkPtr ProcessGroup::scatter(at::Tensor& output, const std::vector<at::Tensor>& inputs, int root) {
  const auto check = impl_->checking("scatter");
  check_output(check, output, "output");
  check_rank(check, root, "root");
  at::Tensor in;
  if (rank() == root) {
    check_list(check, inputs, output, "inputs");
    in = stage_inputs(inputs, output);
  } else {
    check_list_absent(check, inputs, "inputs");
  }
  auto out = stage_output(output);
  return impl_->launch(
      signature_of(Operation::scatter, root), out.tensor,
      [&](Call call) { return impl_->backend->scatter(out.tensor, in, root, std::move(call)); }, out.finish);
}

WorkPtr ProcessGroup::reduce_scatter(at::Tensor& output, const std::vector<at::Tensor>& inputs, ReduceOp op) {
  const auto check = impl_->checking("reduce_scatter");
  check_output(check, output, "output");
  check_list(check, inputs, output, "inputs");
  check_reduce(check, output, op);
  const auto in = stage_inputs(inputs, output);
  auto out = stage_output(output);
  return impl_->launch(
      signature_of(Operation::reduce_scatter, op), out.tensor,
      [&](Call call) { return impl_->backend->reduce_scatter(out.tensor, in, op, std::move(call)); },
      out.finish);
}

WorkPtr ProcessGroup::reduce_scatter_tensor(at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  return start_reduce_scatter(*impl_, output, input, op, false);
}

WorkPtr ProcessGroup::reduce_scatter_tensor_agreed(at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  return start_reduce_scatter(*impl_, output, input, op, true);
}

WorkPtr ProcessGroup::all_to_all(std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs) {
  const auto check = impl_->checking("all_to_all");
  if (inputs.empty()) throw Error(ErrorKind::usage, "all_to_all: no inputs");
  check_tensor(check, inputs.front(), "first input");
  check_list(check, inputs, inputs.front(), "inputs", true);
  check_outputs(check, outputs, inputs.front(), true);
  std::vector<std::int64_t> input_counts;
  std::vector<std::int64_t> output_counts;
  for (const auto& tensor : inputs) input_counts.push_back(tensor.numel());
  for (const auto& tensor : outputs) output_counts.push_back(tensor.numel());
  check_own_part(check, output_counts, input_counts);
  const auto in = stage_inputs(inputs, inputs.front());
  auto out = stage_outputs(outputs, inputs.front());
  return impl_->launch(
      signature_of(Operation::all_to_all), in,
      [&](Call call) {
        return impl_->backend->all_to_all(out.tensor, in, output_counts, input_counts, std::move(call));
      },
      out.finish);
}

WorkPtr ProcessGroup::all_to_all_single(at::Tensor& output, const at::Tensor& input,
                                        const std::vector<std::int64_t>& output_splits,
                                        const std::vector<std::int64_t>& input_splits) {
  const auto check = impl_->checking("all_to_all_single");
  check_tensor(check, input, "input");
  check_output(check, output, "output");
  check_same_dtype(check, output, input);
  const auto output_counts = check_splits(check, output, output_splits, "output");
  const auto input_counts = check_splits(check, input, input_splits, "input");
  check_own_part(check, output_counts, input_counts);
  const auto in = stage_input(input);
  auto out = stage_output(output);
  return impl_->launch(
      signature_of(Operation::all_to_all), in,
      [&](Call call) {
        return impl_->backend->all_to_all(out.tensor, in, output_counts, input_counts, std::move(call));
      },
      out.finish);
}

WorkPtr ProcessGroup::send(const at::Tensor& tensor, int destination, int tag) {
  const auto check = impl_->checking("send");
  check_tensor(check, tensor, "tensor");
  check_rank(check, destination, "destination");
  if (destination == rank()) throw Error(ErrorKind::usage, "send: a rank cannot send to itself");
  const auto in = stage_input(tensor);
  return impl_->launch(signature_of(Operation::send, destination), in, [&](Call call) {
    return impl_->backend->send(in, destination, tag, std::move(call));
  });
}

WorkPtr ProcessGroup::recv(at::Tensor& tensor, int source, int tag) {
  const auto check = impl_->checking("recv");
  check_output(check, tensor, "tensor");
  check_rank(check, source, "source");
  if (source == rank()) throw Error(ErrorKind::usage, "recv: a rank cannot receive from itself");
  auto out = stage_output(tensor);
  return impl_->launch(
      signature_of(Operation::recv, source), out.tensor,
      [&](Call call) { return impl_->backend->recv(out.tensor, source, tag, std::move(call)); }, out.finish);
}

WorkPtr ProcessGroup::barrier() {
  return impl_->launch(signature_of(Operation::barrier), 0, Deadline::after(impl_->options.timeout),
                       [&](Call call) { return impl_->backend->barrier(std::move(call)); });
}

void ProcessGroup::monitored_barrier(std::optional<std::chrono::milliseconds> timeout) {
  const auto deadline = Deadline::after(timeout.value_or(impl_->options.timeout));
  impl_
      ->launch(signature_of(Operation::barrier), 0, deadline,
               [&](Call call) { return impl_->backend->barrier(std::move(call)); })
      ->wait();
}

}  // namespace dtorch
