#include "backends/shm/engine/mail.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace dtorch::shm {
namespace {

std::uint32_t pieces(std::size_t bytes) {
  return static_cast<std::uint32_t>((bytes + Mail::kPiece - 1) / Mail::kPiece);
}

std::size_t piece_bytes(std::size_t bytes, std::uint32_t piece) {
  return std::min(Mail::kPiece, bytes - piece * Mail::kPiece);
}

void compare(const CallSignature& mine, const CallSignature& theirs, int rank, int peer) {
  if (mine.count == theirs.count && mine.dtype == theirs.dtype) return;
  throw PeerError(ErrorKind::disagree, disagreement(rank, mine, peer, theirs), {peer},
                  "the tensors of a send and its receive must have equal types and sizes");
}

Mail* claim(Mailbox& box) {
  for (auto& mail : box.mails) {
    std::uint32_t free = kFree;
    if (mail.state.value.compare_exchange_strong(free, kClaimed, std::memory_order_acquire)) return &mail;
  }
  return nullptr;
}

Mail* find(Mailbox& box, int tag) {
  for (auto& mail : box.mails) {
    const auto posted = [&] { return mail.state.value.load(std::memory_order_acquire) == kPosted; };
    // Asked again after the tag, which may be that of the place's next message.
    if (posted() && mail.tag.load(std::memory_order_acquire) == tag && posted()) return &mail;
  }
  return nullptr;
}

void write_piece(Mail& mail, const void* data, std::size_t bytes, std::uint32_t piece) {
  std::memcpy(mail.data[piece % 2].data(), static_cast<const std::byte*>(data) + piece * Mail::kPiece,
              piece_bytes(bytes, piece));
}

}  // namespace

void send_mail(Mailbox& box, Watch& watch, const void* data, std::size_t bytes, int rank, int destination,
               int tag, const ByteCall& call) {
  const auto peer = [&] { return std::vector{destination}; };
  Mail* mail = claim(box);
  // All places are taken by messages that nobody has asked for yet: wait for one of them to go.
  while (mail == nullptr) {
    const auto soon = std::min(call.deadline.at(), Clock::now() + std::chrono::milliseconds(1));
    try {
      watch.wait(
          box.mails[0].state, destination, Deadline(soon), [](auto state) { return state == kFree; }, peer);
    } catch (const PeerError& error) {
      if (error.kind() != ErrorKind::timeout || call.deadline.expired()) throw;
    }
    mail = claim(box);
  }
  const std::uint32_t count = pieces(bytes);
  const std::uint32_t early = std::min(count, 2U);
  mail->tag.store(tag, std::memory_order_release);
  mail->sender = call.signature;
  for (std::uint32_t piece = 0; piece < early; ++piece) write_piece(*mail, data, bytes, piece);
  mail->written.value.store(early, std::memory_order_relaxed);
  mail->read.value.store(0, std::memory_order_relaxed);
  publish(mail->state, kPosted);
  box.posts.value.fetch_add(1, std::memory_order_seq_cst);
  if (box.posts.sleepers.load(std::memory_order_seq_cst) != 0) wake(box.posts);

  watch.wait(
      mail->state, destination, call.deadline, [](auto state) { return state == kMatched; }, peer);
  compare(call.signature, mail->receiver, rank, destination);
  for (std::uint32_t piece = early; piece < count; ++piece) {
    watch.wait(
        mail->read, destination, call.deadline, [&](auto read) { return read + 2 > piece; }, peer);
    write_piece(*mail, data, bytes, piece);
    publish(mail->written, piece + 1);
  }
  watch.wait(
      mail->read, destination, call.deadline, [&](auto read) { return read == count; }, peer);
  publish(mail->state, kFree);
}

void receive_mail(Mailbox& box, Watch& watch, void* data, std::size_t bytes, int rank, int source, int tag,
                  const ByteCall& call) {
  const auto peer = [&] { return std::vector{source}; };
  Mail* mail = nullptr;
  while (true) {
    const auto posts = box.posts.value.load(std::memory_order_seq_cst);
    mail = find(box, tag);
    if (mail != nullptr) break;
    watch.wait(
        box.posts, source, call.deadline, [&](auto now) { return now != posts; }, peer);
  }
  const CallSignature theirs = mail->sender;
  mail->receiver = call.signature;
  publish(mail->state, kMatched);
  compare(call.signature, theirs, rank, source);
  for (std::uint32_t piece = 0; piece < pieces(bytes); ++piece) {
    watch.wait(
        mail->written, source, call.deadline, [&](auto written) { return written > piece; }, peer);
    std::memcpy(static_cast<std::byte*>(data) + piece * Mail::kPiece, mail->data[piece % 2].data(),
                piece_bytes(bytes, piece));
    publish(mail->read, piece + 1);
  }
}

}  // namespace dtorch::shm
