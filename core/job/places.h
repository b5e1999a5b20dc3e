// Where a spec's values stand, for what turns out to be wrong with them once files and the machine are looked at.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "core/job/load.h"

namespace dtorch {

/** What is wrong with a value of a resolved spec, or with a file that it names. */
struct SpecProblem {
  std::string key;   ///< "loader.batch_size", "model.layers.0"; empty: `file` is to blame
  std::string file;  ///< empty: the spec is to blame
  std::string message;
  std::string help;  ///< may be empty
};

/**
 * The places of a spec's values in its files and flags. Travels as text to processes that see no file. Without
 * places (another machine's spec) problems name the key and the name given here.
 */
class SpecPlaces {
 public:
  explicit SpecPlaces(std::string name = "job spec") : name_(std::move(name)) {}

  /** A value's place; its message and help are not used. ORDER sorts the files and flags of a spec. */
  void set(const std::string& key, Diagnostic where, int order);

  /**
   * Throws all problems: a SpecError at the values' places (of an element that is not given: its list's place), or an
   * Error(data) when only files are to blame. Does nothing when there are none.
   */
  void raise(const std::vector<SpecProblem>& problems) const;

  std::string to_text() const;
  /** The inverse of to_text(); of an empty text, no places. */
  static SpecPlaces from_text(const std::string& text);

 private:
  struct Where {
    Diagnostic diagnostic;
    int order = 0;
  };
  Where where(const std::string& key) const;

  std::string name_;
  std::map<std::string, Where> places_;
};

}  // namespace dtorch
