#include "core/comm/dir_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "core/base/deadline.h"
#include "core/base/error.h"

namespace dtorch {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

class DirStoreTest : public testing::Test {
 protected:
  DirStoreTest() {
    std::string name = (fs::temp_directory_path() / "dir_store.XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~DirStoreTest() override { fs::remove_all(path_); }

  DirStore open() const { return DirStore(path_, "file://test"); }
  fs::path file(const std::string& key, int version) const {
    return fs::path(path_) / (escape_key(key) + "@" + std::to_string(version));
  }

  std::string path_;
};

std::string text(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

template <typename Call>
ErrorKind kind_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.kind();
  }
  ADD_FAILURE() << "no error";
  return ErrorKind::training;
}

TEST_F(DirStoreTest, AnotherProcessesStoreSeesTheNewestValue) {
  auto one = open();
  auto other = open();
  one.set("a/b c", std::string("1"));
  EXPECT_EQ(other.get_to_str("a/b c"), "1");
  for (int i = 0; i < 40; ++i) one.set("a/b c", std::to_string(i));
  EXPECT_EQ(other.get_to_str("a/b c"), "39");
  EXPECT_EQ(open().get_to_str("a/b c"), "39");
  one.set("empty", std::string());
  EXPECT_EQ(other.get_to_str("empty"), "");
}

TEST_F(DirStoreTest, KeysOfAnyBytesAndLengthStayApart) {
  auto store = open();
  std::vector<std::string> keys;
  for (const char* key : {"", ".", "..", "a/b", "a%2Fb", "a@1", "\xff\n"}) keys.emplace_back(key);
  keys.emplace_back("z\0z", 3);
  keys.emplace_back(5000, 'x');
  keys.push_back(keys.back());
  keys.back().back() = 'y';
  for (std::size_t i = 0; i < keys.size(); ++i) store.set(keys[i], std::to_string(i));
  auto other = open();
  for (std::size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(other.get_to_str(keys[i]), std::to_string(i));
  EXPECT_EQ(other.getNumKeys(), static_cast<int64_t>(keys.size()));
}

TEST_F(DirStoreTest, AddsOfManyThreadsAllCount) {
  constexpr int kThreads = 4, kAdds = 50;
  std::vector<std::vector<int64_t>> sums(kThreads);
  std::vector<std::thread> threads;
  for (auto& mine : sums) {
    threads.emplace_back([&] {
      auto store = open();
      for (int i = 0; i < kAdds; ++i) mine.push_back(store.add("n", 1));
    });
  }
  for (auto& thread : threads) thread.join();
  std::vector<int64_t> all;
  for (const auto& mine : sums) all.insert(all.end(), mine.begin(), mine.end());
  std::sort(all.begin(), all.end());
  for (int i = 0; i < kThreads * kAdds; ++i) EXPECT_EQ(all[i], i + 1);
  EXPECT_EQ(open().get_to_str("n"), std::to_string(kThreads * kAdds));
}

TEST_F(DirStoreTest, AddRefusesTextAndOverflow) {
  auto store = open();
  store.set("text", std::string("x1"));
  EXPECT_EQ(kind_of([&] { store.add("text", 1); }), ErrorKind::usage);
  store.set("big", std::to_string(INT64_MAX));
  EXPECT_EQ(kind_of([&] { store.add("big", 1); }), ErrorKind::usage);
  EXPECT_EQ(store.add("big", -1), INT64_MAX - 1);
}

TEST_F(DirStoreTest, CompareSetSetsOnlyWhatIsExpected) {
  auto store = open();
  c10d::Store& base = store;
  EXPECT_EQ(base.compareSet("k", "other", "new"), "other");
  EXPECT_FALSE(store.check({"k"}));
  EXPECT_EQ(base.compareSet("k", "", "first"), "first");
  EXPECT_EQ(base.compareSet("k", "", "second"), "first");
  EXPECT_EQ(base.compareSet("k", "first", "second"), "second");
}

TEST_F(DirStoreTest, DeletedKeysAreGoneAndMayComeBack) {
  auto store = open();
  EXPECT_FALSE(store.deleteKey("k"));
  store.set("k", std::string("v"));
  EXPECT_TRUE(store.deleteKey("k"));
  EXPECT_FALSE(open().check({"k"}));
  EXPECT_EQ(store.getNumKeys(), 0);
  EXPECT_EQ(store.add("k", 5), 5);
  EXPECT_TRUE(open().check({"k"}));
}

TEST_F(DirStoreTest, WaitHoldsItsDeadlineAndNamesTheKey) {
  auto store = open();
  const auto start = Clock::now();
  try {
    store.wait({"never"}, 50ms);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::timeout);
    EXPECT_NE(std::string(error.what()).find("'never'"), std::string::npos);
  }
  EXPECT_GE(Clock::now() - start, 50ms);
  EXPECT_LT(Clock::now() - start, 5s);
  store.setTimeout(20ms);
  EXPECT_EQ(kind_of([&] { store.get("never"); }), ErrorKind::timeout);
}

TEST_F(DirStoreTest, WaitEndsWhenTheKeyComes) {
  auto store = open();
  std::thread writer([&] {
    std::this_thread::sleep_for(50ms);
    open().set("late", std::string("x"));
  });
  store.wait({"late"}, 60s);
  writer.join();
  EXPECT_EQ(text(store.get("late")), "x");
}

TEST_F(DirStoreTest, DamagedFilesAreNamedWithSizes) {
  open().set("k", std::string("value"));
  const auto name = file("k", 1);
  const auto whole = fs::file_size(name);
  const std::vector<std::function<void()>> damages{
      [&] { fs::resize_file(name, whole - 1); }, [&] { std::ofstream(name, std::ios::app) << "x"; },
      [&] { std::ofstream(name) << "garbage, but longer than the head of a store file"; },
      [&] {
        std::fstream f(name, std::ios::in | std::ios::out);
        f.seekp(8);
        f << "\xff\xff\xff\xff\xff\xff\xff\xff";
      }};
  for (const auto& damage : damages) {
    fs::remove(name);
    open().set("k", std::string("value"));
    damage();
    try {
      open().get("k");
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::lost);
      EXPECT_NE(std::string(error.what()).find(name.string()), std::string::npos) << error.what();
    }
  }
}

TEST_F(DirStoreTest, TornFileThatBecomesWholeIsRead) {
  auto store = open();
  store.set("k", std::string("value"));
  const auto name = file("k", 1);
  const auto copy = fs::path(path_) / "copy";
  fs::copy_file(name, copy);
  fs::resize_file(name, 10);
  std::thread healer([&] {
    std::this_thread::sleep_for(100ms);
    fs::rename(copy, name);
  });
  EXPECT_EQ(open().get_to_str("k"), "value");
  healer.join();
}

TEST_F(DirStoreTest, RemovedFolderIsALostStore) {
  auto store = open();
  fs::remove_all(path_);
  EXPECT_EQ(kind_of([&] { store.check({"k"}); }), ErrorKind::lost);
  EXPECT_EQ(kind_of([&] { store.set("k", std::string("v")); }), ErrorKind::lost);
}

TEST_F(DirStoreTest, SupersededValuesTakeNoSpace) {
  auto store = open();
  for (int i = 0; i < 3; ++i) store.set("k", std::string(100'000, 'x'));
  EXPECT_EQ(fs::file_size(file("k", 1)), 0U);
  EXPECT_EQ(fs::file_size(file("k", 2)), 0U);
  for (const auto& entry : fs::directory_iterator(path_))
    EXPECT_TRUE(is_dir_store_file(entry.path().filename()));
}

}  // namespace
}  // namespace dtorch
