// Messages between two ranks.
#pragma once
#include <cstddef>

#include "backends/shm/engine/layout.h"
#include "backends/shm/engine/watch.h"
#include "core/bytes/byte_collectives.h"

namespace dtorch::shm {

/** Lays the data down for the mailbox's other end and returns when it has been taken. */
void send_mail(Mailbox& box, Watch& watch, const void* data, std::size_t bytes, int rank, int destination,
               int tag, const ByteCall& call);
/** Takes what was sent with the tag. */
void receive_mail(Mailbox& box, Watch& watch, void* data, std::size_t bytes, int rank, int source, int tag,
                  const ByteCall& call);

}  // namespace dtorch::shm
