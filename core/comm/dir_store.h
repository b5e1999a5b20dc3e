// A store in a directory: what carries file:// and shared_filesystem://. Needs nothing of the file system but
// that a hard link (or an exclusive create) has one winner and that a renamed file is whole, so NFS will do.
// Takes no locks.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace dtorch {

/**
 * Every change of a key is one more file, `k.<key>@<version>`, complete before it gets its name; the name is
 * taken by link(2), which one writer wins, the others read anew and try again. So set, add, compareSet and
 * deleteKey are atomic and a reader never waits for a writer. Versions have no gaps: the newest is found by
 * doubling steps, not by listing. Superseded versions are emptied, not removed. Thread-safe; any number of
 * processes and hosts.
 *
 * Throws Error(timeout) naming keys that did not come, Error(lost) when the directory has gone or a file in
 * it is damaged, Error(cannot_write) when it cannot be written.
 */
class DirStore : public c10d::Store {
 public:
  /** The directory must exist. Names in messages are `name`'s ("file:///tmp/x"). */
  DirStore(std::string directory, std::string name);

  c10::intrusive_ptr<c10d::Store> clone() override;
  using c10d::Store::set;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  using c10d::Store::compareSet;
  /** As TCPStore: an absent key is set if `expected` is empty, else left absent and `expected` returned. */
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  /** Waits up to the store's timeout for the key. */
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<std::string> listKeys() override;

 private:
  using Value = std::optional<std::vector<uint8_t>>;
  struct Latest {
    std::uint64_t version = 0;  ///< 0: never written
    Value value;                ///< nothing: absent or deleted
  };
  /** Makes the next value of a key from the present one; nothing: leave it. */
  template <typename Change>
  Latest update(const std::string& key, Change&& change);

  Latest latest(const std::string& key);
  std::uint64_t newest_version(const std::string& key);
  bool publish(const std::string& key, std::uint64_t version, const Value& value);
  std::string path(const std::string& key, std::uint64_t version) const;
  void refresh() const;

  std::string directory_;
  std::string name_;
  std::mutex mutex_;
  std::map<std::string, std::uint64_t> known_;  ///< guarded by mutex_: a version that existed, by key
};

/** Whether a name in a store's directory is one that DirStore makes. */
bool is_dir_store_file(const std::string& name);

/** The part of a file's name that stands for a key: letters, digits, '-', '_' and '.' as they are, the rest
 * as %XX; long ones as a hash. */
std::string escape_key(const std::string& key);

}  // namespace dtorch
