// Makes a Backend for tensors of collectives on plain memory.
#pragma once
#include <memory>
#include <string>

#include "core/bytes/byte_collectives.h"
#include "core/bytes/plain_store.h"
#include "core/comm/backend.h"
#include "core/comm/backend_factory.h"

namespace dtorch {

/** The view of a group's store that transports get; shares its ownership. */
std::unique_ptr<PlainStore> make_plain_store(StorePtr store);

/**
 * A Backend for CPU tensors that runs collectives on the thread that waits for them, and messages between two ranks on
 * threads of their own.
 */
std::unique_ptr<Backend> make_byte_backend(std::string name, std::unique_ptr<ByteCollectives> collectives);

}  // namespace dtorch
