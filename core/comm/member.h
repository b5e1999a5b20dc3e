// What a rank tells of itself when it joins, and what may not differ between ranks.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dtorch {

struct Member {
  long sequence = 0;  ///< of its registration, from 1; the later one is greater
  int rank = 0;
  int world_size = 1;
  std::string host;
  int pid = 0;
  std::string version;  ///< of the protocol and of libtorch
  std::string digest;
};

/** This process, without a sequence. */
Member describe_self(int rank, int world_size, std::string digest);

std::string to_text(const Member& member);
/** Nothing when the text is no member's: it came from elsewhere. */
std::optional<Member> member_from(const std::string& text, long sequence);

/** "rank 1 (host a, pid 12)" */
std::string name_of(const Member& member);

/** How two members contradict each other; nothing: they may form a group. `digests_differ` wants the texts
 * compared. */
struct Conflict {
  std::string message;
  std::string help;
  bool digests_differ = false;
};
std::optional<Conflict> find_conflict(const Member& first, const Member& second);

/** The first lines "key: value" in which two texts differ, as "key: one on rank A, other on rank B",
 * indented, one a line. */
std::string differing_lines(const Member& first, const std::string& first_text, const Member& second,
                            const std::string& second_text);

/** By rank; of several registrations of a rank the newest. */
using Members = std::map<int, Member>;
std::vector<int> missing_ranks(const Members& members, int world_size);
/** "0-3,7", shortened when long. */
std::string ranks_text(const std::vector<int>& ranks);
/** "ranks 0-3 on a, 4 on b" */
std::string hosts_text(const Members& members);

}  // namespace dtorch
