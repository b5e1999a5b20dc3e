#include "core/comm/member.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/version.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "core/base/host.h"
#include "core/base/json_text.h"

namespace dtorch {
namespace {

constexpr int kProtocol = 1;
constexpr std::size_t kMaxText = 4096;
constexpr std::size_t kShownLines = 5;
constexpr std::size_t kShownRanges = 16;

std::map<std::string, std::string> lines_by_key(const std::string& text) {
  std::map<std::string, std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const auto colon = line.find(": ");
    lines[line.substr(0, colon)] = colon == std::string::npos ? "" : line.substr(colon + 2);
  }
  return lines;
}

}  // namespace

Member describe_self(int rank, int world_size, std::string digest) {
  Member self;
  self.rank = rank;
  self.world_size = world_size;
  self.host = host_name();
  self.pid = ::getpid();
  self.version = fmt::format("rendezvous {}, libtorch {}", kProtocol, TORCH_VERSION);
  self.digest = std::move(digest);
  return self;
}

std::string to_text(const Member& member) {
  return json_text({{"rank", member.rank},
                    {"world_size", member.world_size},
                    {"host", member.host},
                    {"pid", member.pid},
                    {"version", member.version},
                    {"digest", member.digest}});
}

std::optional<Member> member_from(const std::string& text, long sequence) {
  if (text.size() > kMaxText) return std::nullopt;
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  try {
    Member member;
    member.sequence = sequence;
    member.rank = json.at("rank").get<int>();
    member.world_size = json.at("world_size").get<int>();
    member.host = json.at("host").get<std::string>();
    member.pid = json.at("pid").get<int>();
    member.version = json.at("version").get<std::string>();
    member.digest = json.at("digest").get<std::string>();
    const bool sane = member.world_size > 0 && member.rank >= 0 && member.rank < member.world_size;
    return sane ? std::optional(member) : std::nullopt;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::string name_of(const Member& member) {
  return fmt::format("rank {} (host {}, pid {})", member.rank, member.host, member.pid);
}

std::optional<Conflict> find_conflict(const Member& first, const Member& second) {
  if (first.version != second.version) {
    return Conflict{fmt::format("ranks run different versions: {} on {}, {} on {}", first.version,
                                name_of(first), second.version, name_of(second)),
                    "install the same dtorch and libtorch on every machine"};
  }
  if (first.world_size != second.world_size) {
    return Conflict{fmt::format("ranks disagree on the world size: {} on {}, {} on {}", first.world_size,
                                name_of(first), second.world_size, name_of(second)),
                    "start every rank with the same world size"};
  }
  if (first.rank == second.rank) {
    return Conflict{fmt::format("rank {} came twice: from host {} (pid {}) and from host {} (pid {})",
                                first.rank, first.host, first.pid, second.host, second.pid),
                    "give every process a rank of its own, and every node its own node rank"};
  }
  if (first.digest != second.digest) {
    return Conflict{fmt::format("ranks disagree on the job: digest {} on {}, {} on {}", first.digest,
                                name_of(first), second.digest, name_of(second)),
                    "start every rank with the same job spec and versions", true};
  }
  return std::nullopt;
}

std::string differing_lines(const Member& first, const std::string& first_text, const Member& second,
                            const std::string& second_text) {
  const auto a = lines_by_key(first_text);
  auto b = lines_by_key(second_text);
  std::vector<std::string> lines;
  const auto value = [](const auto& lines_, const std::string& key) {
    const auto it = lines_.find(key);
    return it == lines_.end() ? std::string("(absent)") : it->second;
  };
  auto keys = a;
  keys.merge(b);
  b = lines_by_key(second_text);
  for (const auto& [key, unused] : keys) {
    if (value(a, key) == value(b, key)) continue;
    lines.push_back(fmt::format("\n  {}: {} on rank {}, {} on rank {}", key, value(a, key), first.rank,
                                value(b, key), second.rank));
  }
  const auto more = lines.size() > kShownLines ? lines.size() - kShownLines : 0;
  lines.resize(lines.size() - more);
  return fmt::format("{}{}", fmt::join(lines, ""), more > 0 ? fmt::format("\n  and {} more", more) : "");
}

std::vector<int> missing_ranks(const Members& members, int world_size) {
  std::vector<int> missing;
  for (int rank = 0; rank < world_size; ++rank) {
    if (members.count(rank) == 0) missing.push_back(rank);
  }
  return missing;
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::vector<std::string> ranges;
  for (std::size_t i = 0; i < ranks.size();) {
    auto end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (ranges.size() == kShownRanges) {
      ranges.push_back(fmt::format("and {} more", ranks.size() - i));
      break;
    }
    ranges.push_back(end == i + 1 ? std::to_string(ranks[i])
                                  : fmt::format("{}-{}", ranks[i], ranks[end - 1]));
    i = end;
  }
  return fmt::format("{}", fmt::join(ranges, ","));
}

std::string hosts_text(const Members& members) {
  std::map<std::string, std::vector<int>> by_host;
  for (const auto& [rank, member] : members) by_host[member.host].push_back(rank);
  std::vector<std::string> parts;
  for (const auto& [host, ranks] : by_host)
    parts.push_back(fmt::format("{} from {}", ranks_text(ranks), host));
  return parts.empty() ? "none has come" : fmt::format("here: {}", fmt::join(parts, ", "));
}

}  // namespace dtorch
