// The text of a spec, checked to be text, and places in it. Internal to core/job.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/job/load.h"

namespace dtorch::job {

inline constexpr std::size_t kMaxBytes = 1 << 20;  ///< of a spec file
inline constexpr int kMaxDepth = 64;               ///< of nested sections and lists

/** One file, or the value of one -s flag. Immutable once made; places point to it, so it stays where it is.
 */
class Source {
 public:
  /** ORDER sorts messages of several sources; a FLAG has no lines worth citing. A byte order mark is dropped.
   */
  Source(std::string name, std::string text, int order, bool flag);
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  const std::string& name() const { return name_; }
  const std::string& text() const { return text_; }
  int order() const { return order_; }
  bool flag() const { return flag_; }

  /** The byte of a line and byte column, both from 0, clamped to the text. */
  std::size_t offset(int line, int column) const;
  /** The line of a byte, from 0. */
  std::size_t line_of(std::size_t offset) const;
  /** A line without its end. */
  std::string_view line(std::size_t index) const;
  std::size_t line_start(std::size_t index) const { return line_starts_[index]; }

 private:
  std::string name_;
  std::string text_;
  int order_;
  bool flag_;
  std::vector<std::size_t> line_starts_;
};

/** Where something stands: a byte offset, and how many characters it is long. */
struct Place {
  const Source* source = nullptr;
  std::size_t offset = 0;
  int length = 1;
};

/** The place as a message's: file, line, column, the source line. */
Diagnostic diagnostic_at(const Place& place);

/** Collects problems; bounded, so that a file of a million mistakes is still answered. */
class Problems {
 public:
  void add(const Place& place, std::string message, std::string help = {});
  /** Whether any was added. */
  explicit operator bool() const { return !found_.empty(); }
  /** How many were added: a caller sees by it whether what it called has complained. */
  std::size_t count() const { return found_.size() + dropped_; }
  /** Whether the list is full: what is added now is only counted, and needs no careful help. */
  bool full() const { return dropped_ > 0; }
  /** In order of source, line and column. */
  std::vector<Diagnostic> take();

 private:
  struct Found {
    int order;
    Diagnostic diagnostic;
  };
  std::vector<Found> found_;
  std::size_t dropped_ = 0;
};

/** Reports what is not plain UTF-8 text (binary files, control characters); false when there was any. */
bool check_text(const Source& source, Problems& problems);

/** What came of reading a file: the text, or why not (`message` is not empty then). */
struct FileText {
  std::string text;
  std::string message;
  std::string help;
};
/** Reads a file ("-": stdin) of at most kMaxBytes. Blocks at most 30 s on a pipe that says nothing. */
FileText read_file(const std::string& path);

/** Characters (code points) in valid UTF-8; bytes that are not count one each. */
std::size_t count_characters(std::string_view text);
/** The characters of a line, each fit to be printed: what is not text, or moves the cursor, is a '?'. Tabs
 * stay. */
std::vector<std::string> printable_characters(std::string_view text);
/** "it has the character U+00A0; write plain ASCII" for a text with one beyond ASCII, else empty. */
std::string strange_character(std::string_view text);
/** TEXT for a message: in full up to 60 characters, else cut; control characters as '?'. */
std::string shown(std::string_view text);

}  // namespace dtorch::job
