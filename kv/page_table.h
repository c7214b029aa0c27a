#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace specdec {

/// Table of the pages that hold the slots of each row. It knows pages by their numbers and counts
/// how many rows refer to each; whoever owns the bytes copies them when a page is split off. A row
/// may have given back its first pages: kNone stands in their places.
class PageTable {
 public:
  using Page = int32_t;
  static constexpr Page kNone = -1;

  /// A page whose bytes are to be copied to another.
  struct Copy {
    Page from;
    Page to;
  };

  int64_t rows() const { return static_cast<int64_t>(rows_.size()); }
  std::span<const Page> pages(int64_t row) const;
  /// Pages that ever existed: their numbers lie below.
  int64_t pages_made() const { return static_cast<int64_t>(references_.size()); }
  /// Number of pages that would be new if the pages of `row` from index `first` to `end` became
  /// writable.
  int64_t pages_needed(int64_t row, int64_t first, int64_t end) const;
  /// Pages given back and not yet used again.
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }

  /// A row as it is going to be: the first `kept` pages of row `source` (-1: of none), those from
  /// index `first` to `end` its own.
  struct Branch {
    int64_t source;
    int64_t kept;
    int64_t first;
    int64_t end;
  };
  /// Pages in use once these rows have taken the place of all rows, and each has been made
  /// writable, in their order: shared pages that are written are copied, except by the last that
  /// holds them. Held pages are in use, and never written.
  int64_t pages_of(std::span<const Branch> branches) const;

  /// Use of the pages, of `page_size` tokens each.
  struct Use {
    int64_t used = 0;    ///< that hold a token of a row, or are held
    int64_t shared = 0;  ///< of these, those with several references
    int64_t spare = 0;   ///< of rows, beyond their tokens
    int64_t tokens = 0;  ///< of rows; those in shared pages count once
    int64_t filled = 0;  ///< pages of rows that hold tokens
  };
  /// `lengths`: tokens of each row, [rows].
  Use use(std::span<const int64_t> lengths, int64_t page_size) const;

  /// Adds empty rows until there are `rows`.
  void add_rows(int64_t rows);
  /// Lets `row` own its pages from index `first` to `end` alone: adds what is missing of them, and
  /// splits off those that it shares, which `copies` then lists.
  void make_writable(int64_t row, int64_t first, int64_t end, std::vector<Copy>& copies);
  /// Takes back what make_writable() has split off: the rows share the pages again, and the copies
  /// are free. Nothing else has changed since.
  void undo_copies(std::span<const Copy> copies);
  /// Refers to the first `count` pages of a row on behalf of a holder that is no row; until
  /// release() nobody writes what lies in them now.
  std::vector<Page> hold(int64_t row, int64_t count);
  void release(std::span<const Page> held);
  /// Lets a row refer to these pages, which are held or another row's, instead of its own.
  void attach(int64_t row, std::span<const Page> pages);
  /// Pages that are held, by rows too or not.
  int64_t held_pages() const;
  /// Gives back the pages of a row from index `count` on.
  void trim(int64_t row, int64_t count);
  /// Gives back the first `count` pages of a row, as far as it still has them.
  void give_back_first(int64_t row, int64_t count);

 private:
  Page take();
  void refer(std::span<const Page> pages);
  void release(Page page);
  /// References to each page that are not those of rows, [pages_made].
  std::vector<int32_t> holders() const;

  std::vector<std::vector<Page>> rows_;
  std::vector<int32_t> references_;  // [pages_made]
  std::vector<Page> free_;
};

}  // namespace specdec
