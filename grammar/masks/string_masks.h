#pragma once
#include <array>
#include <bitset>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/json/json_string_decoder.h"
#include "grammar/regex/regex.h"
#include "grammar/tables/cache_file.h"
#include "grammar/tables/intern_table.h"
#include "grammar/tables/recent_cache.h"
#include "grammar/tables/token_trie.h"
#include "grammar/token_mask.h"

namespace specdec {

/// Which tokens stay inside a JSON string of some language, and which close it. One walk over the
/// vocabulary for each such place, ever: all grammars of a vocabulary share them. A walk follows
/// only what differs from a walk that was made before, so most languages cost little.
class StringMasks {
 public:
  /// A token that stays inside, with the number of characters that it adds.
  struct Inside {
    Token token = 0;
    uint32_t length = 0;
  };
  /// A token that closes the string; `remainder` is what it holds after the quote.
  struct Exit {
    uint32_t remainder = 0;
    Token token = 0;
    uint32_t length = 0;
  };
  /// With many tokens inside, bits; with few, lists. A token that closes the string is never inside
  /// one, so one set of bits says both.
  struct Walk {
    std::shared_ptr<const MaskWords> bits;  ///< inside, or closing with nothing after the quote
    MaskWords closing;                      ///< with bits: a bit by index in Meaning::closing
    std::vector<Inside> inside;             ///< without bits
    std::vector<Exit> exits;                ///< without bits; sorted by remainder
  };

  /// `max_bytes`: of walks and of bits made from them; those that were not used for longest are
  /// dropped, and made again when they are asked for.
  /// `cache`: what another process has written, or nullptr.
  StringMasks(const TokenTrie& trie, RegexStore& regexes, uint64_t max_bytes,
              const CacheFile* cache = nullptr);

  const TokenTrie& trie() const { return trie_; }

  /// Writes what was found out so far, and what only `old` has; of walks no more than `max_bytes`,
  /// the latest first.
  void write(CacheFileWriter& file, const CacheFile& old, uint64_t max_bytes) const;
  /// Grows with all that was found out and not read.
  uint64_t made() const { return made_; }

  /// The tokens below a node of the trie, as seen from the beginning of a string or from a place
  /// between two of its characters, that the node's own text has led to.
  std::shared_ptr<const Walk> walk(TokenTrie::Node node, RegexId language, EscapeStyle escapes);
  /// Tokens of either; shared with one of them when that has all of the other.
  std::shared_ptr<const MaskWords> unite(const std::shared_ptr<const MaskWords>& a,
                                         const std::shared_ptr<const MaskWords>& b);
  /// The tokens of a walk with bits whose number of characters is in range: at most `max`, and at
  /// least `min` for those that close; without `may_close` none of these.
  struct Lengths {
    uint64_t min = 0;
    uint64_t max = ~uint64_t{0};
  };
  std::shared_ptr<const MaskWords> bits(const Walk& walk, EscapeStyle escapes, bool may_close,
                                        const Lengths& lengths);
  /// Tokens that close the string with that remainder; none without one where the walk has bits,
  /// which then say it.
  std::vector<Exit> exits(const Walk& walk, EscapeStyle escapes, uint32_t remainder);
  /// What may stand after a quote in some token; remainder 0 is nothing.
  const TokenTrie& remainders() const { return *remainders_; }
  /// True when it holds a whole string after a comma, which may be an object's next name.
  bool may_have_name(uint32_t remainder) const { return may_have_name_[remainder] != 0; }
  /// True when it begins with a list's end, or is but a comma with or without the next string's
  /// quote.
  bool ends_item(uint32_t remainder) const { return ends_item_[remainder] != 0; }

  uint64_t walks() const { return walks_; }  ///< over the whole vocabulary, made so far

 private:
  using Node = TokenTrie::Node;
  /// A set of characters, told roughly: each of ASCII, the line separators U+2028 and U+2029, all
  /// others together.
  struct Letters {
    std::bitset<128> ascii;
    bool separators = false;
    bool others = false;
    bool unclear = false;  ///< unfinished escapes
  };
  /// What a byte of the whole vocabulary's tree means inside a string.
  struct Meaning {
    static constexpr char32_t kQuote = 0x110000;    ///< the end
    static constexpr char32_t kNothing = 0x110001;  ///< no string goes on so
    static constexpr char32_t kPart = 0x110002;     ///< and above: kPart + index in `parts`
    std::vector<char32_t> points;  ///< by node: the character that it completes, or one of these
    std::vector<JsonStringDecoder> parts;  ///< unfinished characters and escapes, each once
    std::vector<uint32_t> lengths;         ///< by token: characters, up to a quote
    uint32_t longest = 0;                  ///< of them
    std::vector<uint32_t> remainders;      ///< by token: of those that close
    std::vector<Token> closing;            ///< with a remainder; sorted by it
    std::vector<uint32_t> first_closing;   ///< by remainder: index in `closing`
    MaskWords inside;                      ///< not closing, some string has them
    MaskWords plain_close;                 ///< closing, without a remainder
    std::vector<std::shared_ptr<const MaskWords>> at_most;  ///< by length
    std::vector<uint32_t> letters;  ///< by node: twice `set`, and one with a quote below
    std::vector<Letters> sets;

    bool has_quote(TokenTrie::Node node) const { return letters[node] % 2 != 0; }
    /// Which of `sets` the node's subtree holds; 0: not told.
    uint32_t set(TokenTrie::Node node) const { return letters[node] / 2; }
  };
  class Difference;
  static constexpr uint32_t kBits = ~uint32_t{0};  ///< a walk with bits, as words
  using Key = std::array<uint64_t, 4>;
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  /// Bits made from others, which are kept so that their addresses tell them apart.
  struct Combined {
    std::shared_ptr<const MaskWords> a, b, result;
  };

  const Combined& keep(const Key& key, Combined combined);
  void keep(const Key& key, std::shared_ptr<const Walk> walk);
  void collect_remainders();
  bool read_remainders();
  bool read_meaning(EscapeStyle escapes, Meaning& meaning) const;
  std::unique_ptr<Walk> read_walk(RegexId language, EscapeStyle escapes);
  static std::vector<uint32_t> to_words(const Walk& walk);
  std::unique_ptr<Walk> to_walk(std::span<const uint32_t> words, size_t closing) const;
  uint32_t remainder_after(Node quote, Node node) const;
  Meaning& meaning(EscapeStyle escapes);
  void find_meaning(EscapeStyle escapes, Meaning& meaning);
  void find_letters(Meaning& meaning);
  Letters letters_of(const Meaning& meaning, Node node) const;
  const std::optional<Letters>& never(RegexId language);
  std::optional<Letters> find_never(RegexId language);
  const Letters& always(RegexId language, uint32_t longest);
  Letters find_always(RegexId language, uint32_t longest);
  static Letters letters_in(const CodePoints& points);
  const MaskWords& at_most(Meaning& meaning, uint64_t length);
  std::unique_ptr<Walk> walk_below(Node root, RegexId language, EscapeStyle escapes);
  std::unique_ptr<Walk> walk_whole(RegexId language, EscapeStyle escapes);
  std::unique_ptr<Walk> walk_all(RegexId language, EscapeStyle escapes);
  static void keep_bits(const Meaning& meaning, const MaskWords& inside, const MaskWords& close,
                        Walk& walk);
  static void keep_lists(const Meaning& meaning, const MaskWords& inside, const MaskWords& close,
                         Walk& walk);
  std::unique_ptr<Walk> walk_few(RegexId language, const Meaning& meaning, EscapeStyle escapes);
  void list_from(Node root, RegexId language, const Meaning& meaning, EscapeStyle escapes,
                 Walk& walk);
  void remember(RegexId language, EscapeStyle escapes);
  RegexId nearest(RegexId language, const Meaning& meaning, EscapeStyle escapes);
  size_t word_count() const { return static_cast<size_t>((trie_.vocab_size() + 31) / 32); }

  const TokenTrie& trie_;
  RegexStore& regexes_;
  uint64_t max_bytes_;
  const CacheFile* cache_;
  std::map<EscapeStyle, std::shared_ptr<const Walk>> everything_;  ///< walks of kAll: never dropped
  RecentCache<Key, std::shared_ptr<const Walk>, KeyHash> kept_walks_;
  uint64_t walk_bytes_ = 0;
  RecentCache<Key, Combined, KeyHash> kept_bits_;
  std::map<EscapeStyle, std::list<RegexId>> recent_;  ///< languages with bits, newest first
  std::map<EscapeStyle, Meaning> meanings_;
  std::unordered_map<RegexId, std::optional<Letters>> never_;
  std::unordered_map<RegexId, Letters> always_;
  std::unique_ptr<TokenTrie> remainders_;
  std::vector<uint8_t> may_have_name_;  ///< by remainder
  std::vector<uint8_t> ends_item_;      ///< by remainder
  uint64_t walks_ = 0;
  uint64_t made_ = 0;
};

}  // namespace specdec
