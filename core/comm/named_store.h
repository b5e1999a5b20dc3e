// A store whose failures are ours: dtorch::Error with the store's name, no stack traces.
#pragma once
#include <string>

#include "core/comm/backend_factory.h"

namespace dtorch {

/**
 * Wraps a libtorch store that users know by this name ("tcp://host:port"). What it throws becomes
 * Error(timeout) for a key that did not come and Error(lost) for a store that is gone; libtorch's own report
 * on stderr is held back meanwhile (unless TORCH_CPP_LOG_LEVEL is set). Thread-safe as the wrapped store is.
 */
StorePtr make_named_store(StorePtr store, std::string name);

/** The address of the server of a TCP store, under whatever prefixes and names; empty for another kind of store. */
std::string store_host(const StorePtr& store);

/** Holds libtorch's warnings back while it lives, process-wide. */
class QuietLibtorch {
 public:
  QuietLibtorch();
  ~QuietLibtorch();
  QuietLibtorch(const QuietLibtorch&) = delete;
  QuietLibtorch& operator=(const QuietLibtorch&) = delete;
};

/** The part of a libtorch message before its stack trace. */
std::string first_lines(const std::exception& error);

}  // namespace dtorch
