// Small whole files: written aside and then given their name, and checked when read.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dtorch {

/** What a record file holds. `value` is nothing for a deleted key. */
struct Record {
  std::string key;
  std::optional<std::vector<std::uint8_t>> value;
};

enum class ReadState { absent, superseded, damaged, whole };
struct ReadResult {
  ReadState state = ReadState::absent;
  Record record;
  std::string problem;  ///< damaged: what is wrong, with sizes
};

/** Reads a record. ENOENT and ESTALE are `absent`, an empty file `superseded`. Other errors: Error(lost). */
ReadResult read_record(const std::string& path);

/**
 * Writes the record to a temporary in `directory` and gives it the name `target` there, if that is still
 * free. False: it is taken. Throws Error(cannot_write), Error(lost) when the directory has gone. Where the
 * file system has no hard links the file is made exclusively and then filled: a reader may see it torn for a
 * moment.
 */
bool create_record(const std::string& directory, const std::string& target, const Record& record);

/** Replaces `target` by `bytes` atomically. False when the directory has gone. Throws Error(cannot_write). */
bool replace_file(const std::string& directory, const std::string& target, const std::string& bytes);

/** Temporaries' names start so. */
inline constexpr char kTemporaryPrefix[] = "t.";

}  // namespace dtorch
