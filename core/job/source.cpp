#include "core/job/source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "core/base/deadline.h"
#include "core/base/fd.h"
#include "core/job/suggest.h"

namespace dtorch::job {
namespace {

constexpr std::size_t kMaxProblems = 100;
constexpr std::size_t kMaxShownLine = 4096;

/** One code point of UTF-8 at OFFSET, and its bytes; length 0 when the bytes are not UTF-8. */
struct CodePoint {
  char32_t value = 0;
  std::size_t length = 0;
};

CodePoint decode(std::string_view text, std::size_t offset) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[offset + i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1};
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || offset + length > text.size()) return {};
  char32_t value = first & (0xFF >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3F);
  }
  constexpr std::array<char32_t, 5> kSmallest{0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < kSmallest[length] || surrogate || value > 0x10FFFF) return {};
  return {value, length};
}

bool is_forbidden(char32_t c) {
  return (c < 0x20 && c != '\t' && c != '\n' && c != '\r') || (c >= 0x7F && c < 0xA0) || c == 0xFEFF ||
         c == 0xFFFE || c == 0xFFFF || c == 0x2028 || c == 0x2029;
}

std::string read_error(const std::string& path, int error_number) {
  return fmt::format("cannot read '{}': {}", path, std::strerror(error_number));
}

/** Everything that FD yields, or an errno; a little more than kMaxBytes at most. */
int read_all(int fd, bool with_deadline, std::string& text) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(30));
  std::array<char, 65536> buffer;
  while (text.size() <= kMaxBytes) {
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got == 0) return 0;
    if (got > 0) {
      text.append(buffer.data(), static_cast<std::size_t>(got));
    } else if (errno == EAGAIN) {
      pollfd poller{fd, POLLIN, 0};
      if (with_deadline && deadline.expired()) return ETIMEDOUT;
      ::poll(&poller, 1, with_deadline ? deadline.poll_ms() : -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace

Source::Source(std::string name, std::string text, int order, bool flag)
    : name_(std::move(name)), text_(std::move(text)), order_(order), flag_(flag) {
  if (text_.starts_with("\xEF\xBB\xBF")) text_.erase(0, 3);
  line_starts_.push_back(0);
  for (std::size_t i = 0; i + 1 < text_.size(); ++i) {
    if (text_[i] == '\n') line_starts_.push_back(i + 1);
  }
}

std::size_t Source::offset(int line, int column) const {
  if (line < 0 || static_cast<std::size_t>(line) >= line_starts_.size()) return line < 0 ? 0 : text_.size();
  return std::min(
      line_starts_[static_cast<std::size_t>(line)] + static_cast<std::size_t>(std::max(column, 0)),
      text_.size());
}

std::size_t Source::line_of(std::size_t offset) const {
  const auto next = std::upper_bound(line_starts_.begin(), line_starts_.end(), offset);
  return static_cast<std::size_t>(next - line_starts_.begin()) - 1;
}

std::string_view Source::line(std::size_t index) const {
  const std::size_t start = line_starts_[index];
  const std::size_t end = std::min(text_.find('\n', start), text_.size());
  std::string_view line(text_.data() + start, end - start);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

Diagnostic diagnostic_at(const Place& place) {
  Diagnostic diagnostic;
  diagnostic.file = place.source->name();
  if (place.source->flag()) return diagnostic;
  const std::size_t index = place.source->line_of(place.offset);
  const std::string_view line = place.source->line(index);
  const std::size_t before = std::min(place.offset - place.source->line_start(index), line.size());
  diagnostic.line = static_cast<int>(index) + 1;
  diagnostic.column = static_cast<int>(count_characters(line.substr(0, before))) + 1;
  const int left = static_cast<int>(count_characters(line.substr(before)));
  diagnostic.length = std::clamp(place.length, 1, std::max(left, 1));
  if (line.size() <= kMaxShownLine) diagnostic.source_line = line;
  return diagnostic;
}

void Problems::add(const Place& place, std::string message, std::string help) {
  if (found_.size() >= kMaxProblems) {
    ++dropped_;
    return;
  }
  Diagnostic diagnostic = diagnostic_at(place);
  diagnostic.message = std::move(message);
  diagnostic.help = std::move(help);
  found_.push_back({place.source->order(), std::move(diagnostic)});
}

std::vector<Diagnostic> Problems::take() {
  std::stable_sort(found_.begin(), found_.end(), [](const Found& a, const Found& b) {
    return std::tie(a.order, a.diagnostic.line, a.diagnostic.column) <
           std::tie(b.order, b.diagnostic.line, b.diagnostic.column);
  });
  std::vector<Diagnostic> result;
  for (Found& found : found_) result.push_back(std::move(found.diagnostic));
  if (dropped_ > 0)
    result.back().help +=
        fmt::format("{}({} more problems are not shown)", result.back().help.empty() ? "" : " ", dropped_);
  found_.clear();
  return result;
}

bool check_text(const Source& source, Problems& problems) {
  const std::string& text = source.text();
  std::size_t bad = 0;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = decode(text, i);
    const Place place{&source, i, 1};
    if (c.length == 0 && i == 0 && (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))) {
      const bool wide = text.compare(0, 4, std::string_view("\xFF\xFE\0\0", 4)) == 0;
      problems.add(place, fmt::format("text in UTF-{}, not UTF-8", wide ? 32 : 16), "save it as UTF-8");
      return false;
    }
    if (c.length == 0) {
      problems.add(place, fmt::format("not UTF-8 text (byte 0x{:02X})", static_cast<unsigned char>(text[i])),
                   "a job spec is a YAML text in UTF-8");
      return false;  // what follows would be noise
    }
    if (c.value == 0) {
      problems.add(place, "a binary file, not YAML (it has a zero byte)",
                   "a job spec is a YAML text in UTF-8");
      return false;
    }
    if (is_forbidden(c.value)) {
      problems.add(place, fmt::format("control character U+{:04X}", static_cast<unsigned>(c.value)),
                   "remove it");
      ++bad;
    } else if (c.value == '\r' && (i + 1 == text.size() || text[i + 1] != '\n')) {
      problems.add(place, "a carriage return that ends no line", "end lines with a line feed");
      return false;  // the others are of the same kind
    }
    i += c.length;
  }
  return bad == 0;
}

FileText read_file(const std::string& path) {
  Fd owned;
  int fd = STDIN_FILENO;
  if (path != "-") {
    // Not blocking: a named pipe that nobody writes to must not hang the command.
    owned = Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    fd = owned.get();
    if (fd < 0 && errno == ENOENT) return {{}, fmt::format("no such file: '{}'", path), suggest_file(path)};
    if (fd < 0) return {{}, read_error(path, errno), {}};
  }
  struct stat status {};
  if (::fstat(fd, &status) != 0) return {{}, read_error(path, errno), {}};
  if (S_ISDIR(status.st_mode))
    return {{}, fmt::format("'{}' is a directory, not a job spec", path), suggest_in_folder(path)};
  FileText result;
  if (const int error = read_all(fd, path != "-", result.text); error != 0)
    return {{}, read_error(path, error), {}};
  if (result.text.size() > kMaxBytes) {
    return {{}, fmt::format("'{}' is over 1 MiB, too long for a job spec", path), "is this the right file?"};
  }
  return result;
}

std::size_t count_characters(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < text.size(); ++count) i += std::max<std::size_t>(decode(text, i).length, 1);
  return count;
}

std::vector<std::string> printable_characters(std::string_view text) {
  std::vector<std::string> result;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = decode(text, i);
    const bool bad = c.length == 0 || is_forbidden(c.value) || c.value == '\n' || c.value == '\r';
    result.push_back(bad ? std::string("?") : std::string(text.substr(i, c.length)));
    i += std::max<std::size_t>(c.length, 1);
  }
  return result;
}

std::string strange_character(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = decode(text, i);
    if (c.value >= 0x80)
      return fmt::format("it has the character U+{:04X}: write plain ASCII", static_cast<unsigned>(c.value));
    i += std::max<std::size_t>(c.length, 1);
  }
  return {};
}

std::string shown(std::string_view text) {
  constexpr std::size_t kMostBytes = 1024;  // a message needs no more than its beginning
  const std::vector<std::string> characters = printable_characters(text.substr(0, kMostBytes));
  std::string result;
  for (std::size_t i = 0; i < characters.size(); ++i) {
    if (i == 60) return result + "…";
    result += characters[i] == "\t" ? "?" : characters[i];
  }
  return result;
}

}  // namespace dtorch::job
