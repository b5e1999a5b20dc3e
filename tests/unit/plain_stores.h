// Stores for ranks that are threads or processes of one test.
#pragma once
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "core/base/error.h"
#include "core/bytes/plain_store.h"

namespace dtorch {

/** For threads. */
class MemoryStore : public PlainStore {
 public:
  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::string get(const std::string& key, Deadline deadline) override {
    std::unique_lock lock(mutex_);
    const bool there = changed_.wait_until(lock, deadline.at(), [&] { return values_.contains(key); });
    if (!there) throw Error(ErrorKind::timeout, "nobody has set " + key);
    return values_[key];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

/** For processes: a file a key, renamed into place. Keys become file names. */
class FolderStore : public PlainStore {
 public:
  explicit FolderStore(std::filesystem::path folder) : folder_(std::move(folder)) {}
  void set(const std::string& key, const std::string& value) override {
    const auto path = path_of(key);
    const std::string draft = path.string() + ".draft" + std::to_string(::getpid());
    std::ofstream(draft, std::ios::binary) << value;
    std::filesystem::rename(draft, path);
  }
  std::string get(const std::string& key, Deadline deadline) override {
    while (!std::filesystem::exists(path_of(key))) {
      if (deadline.expired()) throw Error(ErrorKind::timeout, "nobody has set " + key);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::ifstream file(path_of(key), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::filesystem::path path_of(std::string key) const {
    for (auto& letter : key) letter = letter == '/' ? '_' : letter;
    return folder_ / key;
  }
  std::filesystem::path folder_;
};

}  // namespace dtorch
