// A rank that does nothing but join, for the tests of rendezvous. Prints one JSON line: how it went.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "core/base/error.h"
#include "core/comm/dir_store.h"
#include "core/comm/rendezvous.h"

namespace {

using dtorch::Deadline;
using nlohmann::json;
using Options = std::map<std::string, std::string>;

/** Everyone adds to one counter; the sums seen by all of them together must be 1 ... N. */
json add_many(c10d::Store& store, int count) {
  std::vector<std::int64_t> sums;
  for (int i = 0; i < count; ++i) sums.push_back(store.add("shared/counter", 1));
  return sums;
}

json use_store(dtorch::Rendezvous& joined) {
  auto& store = *joined.store();
  store.set("hello/" + std::to_string(joined.rank()), "from " + std::to_string(joined.rank()));
  std::string all;
  for (int r = 0; r < joined.world_size(); ++r) all += store.get_to_str("hello/" + std::to_string(r)) + ";";
  return all;
}

json join(const Options& options) {
  const auto option = [&](const std::string& name) -> std::string {
    const auto it = options.find(name);
    return it == options.end() ? "" : it->second;
  };
  dtorch::RendezvousRequest request{
      .init_method = option("init"),
      .rank = {},
      .world_size = {},
      .run_id = option("run-id"),
      .attempt = std::atoi(option("attempt").c_str()),
      .digest = option("digest"),
      .digest_text = option("digest-text"),
      .serve = option("client").empty(),
      .deadline = Deadline::after(std::chrono::milliseconds(std::atoi(option("timeout-ms").c_str())))};
  if (!option("rank").empty()) request.rank = std::atoi(option("rank").c_str());
  if (!option("world").empty()) request.world_size = std::atoi(option("world").c_str());
  const auto start = dtorch::Clock::now();
  auto joined = dtorch::rendezvous(request);
  const std::chrono::duration<double, std::milli> took = dtorch::Clock::now() - start;
  json result{{"rank", joined->rank()}, {"world_size", joined->world_size()}, {"join_ms", took.count()}};
  if (!option("adds").empty()) result["sums"] = add_many(*joined->store(), std::atoi(option("adds").c_str()));
  result["hello"] = use_store(*joined);
  if (!option("hold").empty()) {
    std::cout << result.dump() << std::endl;
    std::cin.get();
  }
  // The store of rank 0 ends with it: leave together.
  joined->store()->add("done", 1);
  while (joined->rank() == 0 && joined->store()->add("done", 0) < joined->world_size()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) options[std::string(argv[i]).substr(2)] = argv[i + 1];
  try {
    std::cout << join(options).dump() << std::endl;
    return 0;
  } catch (const dtorch::MissingRanksError& error) {
    std::cout << json{{"kind", to_string(error.kind())},
                      {"message", error.what()},
                      {"help", error.help()},
                      {"missing", error.missing()}}
                     .dump()
              << std::endl;
  } catch (const dtorch::Error& error) {
    std::cout
        << json{{"kind", to_string(error.kind())}, {"message", error.what()}, {"help", error.help()}}.dump()
        << std::endl;
  } catch (const std::exception& error) {
    std::cout << json{{"kind", "unexplained"}, {"message", error.what()}}.dump() << std::endl;
  }
  return 1;
}
