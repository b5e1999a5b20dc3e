#include "core/comm/named_store.h"

#include <c10/util/Logging.h>
#include <fmt/format.h>

#include <cstdlib>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "core/base/error.h"

namespace dtorch {
namespace {

// libtorch's log level is one global; nested and concurrent holders share one change of it.
constexpr int kFatalOnly = 3;
std::mutex quiet_mutex;
int quiet_holders = 0;
std::optional<int> level_before;  // what the holders have changed it from

class NamedStore : public c10d::Store {
 public:
  NamedStore(StorePtr store, std::string name)
      : c10d::Store(store->getTimeout()), store_(std::move(store)), name_(std::move(name)) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return call([&] { return make_named_store(store_->clone(), name_); });
  }
  using c10d::Store::set;
  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    call([&] { store_->set(key, value); });
  }
  using c10d::Store::compareSet;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override {
    return call([&] { return store_->compareSet(key, expected, desired); });
  }
  std::vector<uint8_t> get(const std::string& key) override {
    return call([&] { return store_->get(key); });
  }
  int64_t add(const std::string& key, int64_t value) override {
    return call([&] { return store_->add(key, value); });
  }
  bool deleteKey(const std::string& key) override {
    return call([&] { return store_->deleteKey(key); });
  }
  bool check(const std::vector<std::string>& keys) override {
    return call([&] { return store_->check(keys); });
  }
  int64_t getNumKeys() override {
    return call([&] { return store_->getNumKeys(); });
  }
  void wait(const std::vector<std::string>& keys) override {
    call([&] { store_->wait(keys); });
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    call([&] { store_->wait(keys, timeout); });
  }
  const StorePtr& inner() const { return store_; }
  const std::chrono::milliseconds& getTimeout() const noexcept override { return store_->getTimeout(); }
  void setTimeout(const std::chrono::milliseconds& timeout) override { store_->setTimeout(timeout); }
  void append(const std::string& key, const std::vector<uint8_t>& value) override {
    call([&] { store_->append(key, value); });
  }
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override {
    return call([&] { return store_->multiGet(keys); });
  }
  void multiSet(const std::vector<std::string>& keys,
                const std::vector<std::vector<uint8_t>>& values) override {
    call([&] { store_->multiSet(keys, values); });
  }
  bool hasExtendedApi() const override { return store_->hasExtendedApi(); }
  void queuePush(const std::string& key, const std::vector<uint8_t>& value) override {
    call([&] { store_->queuePush(key, value); });
  }
  std::vector<uint8_t> queuePop(const std::string& key, bool block) override {
    return call([&] { return store_->queuePop(key, block); });
  }
  int64_t queueLen(const std::string& key) override {
    return call([&] { return store_->queueLen(key); });
  }
  std::vector<std::string> listKeys() override {
    return call([&] { return store_->listKeys(); });
  }

 private:
  template <typename Function>
  auto call(Function&& function) const -> decltype(function()) {
    const QuietLibtorch quiet;
    try {
      return function();
    } catch (const c10::DistStoreError& error) {
      throw Error(ErrorKind::timeout, fmt::format("store {}: {}", name_, first_lines(error)));
    } catch (const c10::DistNetworkError& error) {
      if (first_lines(error).find("Socket Timeout") != std::string::npos) {
        throw Error(ErrorKind::timeout, fmt::format("the store {} does not answer", name_),
                    "its machine or the way to it may be down, or the process that serves it stopped");
      }
      throw Error(ErrorKind::lost, fmt::format("the store {} is gone: {}", name_, first_lines(error)),
                  "it ends with rank 0 or the launcher: look for what ended those");
    } catch (const c10::Error& error) {
      throw Error(ErrorKind::lost, fmt::format("store {}: {}", name_, first_lines(error)));
    }
  }

  StorePtr store_;
  std::string name_;
};

}  // namespace

StorePtr make_named_store(StorePtr store, std::string name) {
  return c10::make_intrusive<NamedStore>(std::move(store), std::move(name));
}

std::string store_host(const StorePtr& store) {
  if (auto* prefix = dynamic_cast<c10d::PrefixStore*>(store.get()))
    return store_host(prefix->getUnderlyingStore());
  if (const auto* named = dynamic_cast<const NamedStore*>(store.get())) return store_host(named->inner());
  const auto* tcp = dynamic_cast<const c10d::TCPStore*>(store.get());
  return tcp != nullptr ? tcp->getHost() : std::string();
}

QuietLibtorch::QuietLibtorch() {
  static const bool user_set_level = std::getenv("TORCH_CPP_LOG_LEVEL") != nullptr;
  const std::lock_guard lock(quiet_mutex);
  if (quiet_holders++ > 0 || user_set_level) return;
  level_before = std::exchange(FLAGS_caffe2_log_level, kFatalOnly);
}

QuietLibtorch::~QuietLibtorch() {
  const std::lock_guard lock(quiet_mutex);
  if (--quiet_holders > 0 || !level_before) return;
  // Unless somebody else has changed it meanwhile.
  if (FLAGS_caffe2_log_level == kFatalOnly) FLAGS_caffe2_log_level = *level_before;
  level_before.reset();
}

std::string first_lines(const std::exception& error) {
  std::string text = error.what();
  text.resize(std::min(text.find("\nException raised from"), text.size()));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace dtorch
