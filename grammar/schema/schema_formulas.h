#pragma once
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/schema/formula.h"
#include "grammar/schema/schema_assertions.h"
#include "grammar/schema/schema_document.h"
#include "grammar/schema/schema_keywords.h"
#include "grammar/tables/flat_map.h"

namespace specdec {

struct SchemaFormulaOptions {
  bool assert_formats = true;    ///< `format` is an assertion, else an annotation
  uint64_t max_branches = 4096;  ///< ways through the applicators below one unevaluated*
};

/// What the keywords of a schema say, as formulas: one subschema at a time, so that recursion ends.
class SchemaFormulas {
 public:
  /// Borrows both.
  SchemaFormulas(SchemaDocument& document, FormulaStore& formulas, SchemaFormulaOptions options);

  /// The atom that stands for the whole schema.
  FormulaId root();
  /// What a kSchema or kNotSchema atom means, in terms of the atoms below. Throws GrammarError
  /// naming the keyword and its JSON pointer.
  FormulaId expand(const Atom& atom);
  /// Where the subschema of a kSchema, kUnique or kRepeated atom stands.
  std::string location(const Atom& atom) const { return document_.location(atom.a); }
  /// The strings that satisfy a formula.
  RegexId text_language(FormulaId formula);
  /// Size of the lists of values that references have copied into choices so far.
  uint64_t referred_bytes() const { return referred_bytes_; }

 private:
  /// Dynamic scope: the resources with dynamic anchors that were entered, outermost first.
  using Scope = std::vector<uint32_t>;
  /// A subschema as it was entered.
  struct Subschema {
    SchemaNode node = 0;
    uint32_t scope = 0;
  };
  class Unevaluated;
  class DisjointnessCheck;
  class Choices;

  FormulaId schema(SchemaNode node, uint32_t scope);
  FormulaId below(Subschema here, std::string_view keyword);
  FormulaId below(Subschema here, std::string_view keyword, size_t index);
  FormulaId below(Subschema here, std::string_view keyword, const JsonMember& part);
  FormulaId expand_node(Subschema here);
  FormulaId local(Subschema here);  ///< all that looks at children, and the plain assertions
  FormulaId in_place(Subschema here);
  /// What it asks of a string, which has neither items nor properties.
  FormulaId expand_for_text(const Atom& atom);
  void add_arrays(Subschema here, std::vector<FormulaId>& parts);
  void add_items(Subschema here, std::vector<FormulaId>& parts);
  void add_objects(Subschema here, std::vector<FormulaId>& parts);
  void add_properties(Subschema here, std::vector<FormulaId>& parts);
  void add_dependencies(Subschema here, std::vector<FormulaId>& parts);
  FormulaId if_present(NameId name, FormulaId then);
  std::vector<SchemaNode> references(Subschema here);
  bool has_unevaluated(Subschema here) const;
  KeySet others(const std::vector<NameId>& names, const std::vector<RegexId>& patterns);

  SchemaDocument& document_;
  SchemaKeywords keywords_;
  SchemaAssertions assertions_;
  FormulaStore& formulas_;
  SchemaFormulaOptions options_;
  std::vector<Scope> scopes_;
  std::map<Scope, uint32_t> scope_ids_;
  FlatMap expanded_;        ///< by node and scope
  uint32_t next_rank_ = 0;  ///< of the properties, in the order of reading
  std::map<FormulaId, RegexId> languages_;
  uint64_t referred_bytes_ = 0;
  std::set<std::pair<SchemaNode, uint32_t>> open_;  ///< being read: a schema that is its own part
};

}  // namespace specdec
