#pragma once
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/schema/formula.h"
#include "grammar/schema/schema_document.h"
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

 private:
  /// Dynamic scope: the resources with dynamic anchors that were entered, outermost first.
  using Scope = std::vector<uint32_t>;
  struct Place {
    SchemaNode node = 0;
    uint32_t scope = 0;
  };
  /// What one way through a schema has evaluated (JSON Schema 2020-12, section 11).
  struct Evaluated {
    bool all_properties = false;
    bool all_items = false;
    uint64_t items = 0;
    std::vector<NameId> names;
    std::vector<RegexId> patterns;
    std::vector<FormulaId> contained;
    bool empty() const;
    void merge(const Evaluated& other);
  };
  struct Branch {
    FormulaId formula = FormulaStore::kTrue;
    Evaluated evaluated;
  };
  using Branches = std::vector<Branch>;

  const JsonValue* keyword(Place place, std::string_view name) const;
  /// Fails when the value's strings are too many or too long.
  void check_text(Place place, std::string_view keyword, const JsonValue& value) const;
  /// Fails when the value holds a number beyond what to_fraction takes.
  void check_numbers(Place place, std::string_view keyword, const JsonValue& value) const;
  [[noreturn]] void fail(Place place, std::string_view keyword, const std::string& what) const;
  FormulaId schema(SchemaNode node, uint32_t scope);
  FormulaId below(Place place, std::string_view keyword);
  FormulaId below(Place place, std::string_view keyword, size_t index);
  FormulaId below(Place place, std::string_view keyword, const JsonMember& part);
  uint64_t count(Place place, std::string_view keyword, uint64_t missing) const;
  bool is_older(Place place, SchemaDraft draft) const {
    return document_.draft(place.node) < draft;
  }

  FormulaId expand_node(Place place);
  FormulaId local(Place place);  ///< all that looks at children, and the plain assertions
  FormulaId in_place(Place place);
  void add_any_type(Place place, std::vector<FormulaId>& parts);
  void add_numbers(Place place, std::vector<FormulaId>& parts);
  void add_strings(Place place, std::vector<FormulaId>& parts);
  void add_format(Place place, std::vector<FormulaId>& parts);
  void add_arrays(Place place, std::vector<FormulaId>& parts);
  void add_items(Place place, std::vector<FormulaId>& parts);
  void add_objects(Place place, std::vector<FormulaId>& parts);
  void add_properties(Place place, std::vector<FormulaId>& parts);
  void add_dependencies(Place place, std::vector<FormulaId>& parts);
  FormulaId if_present(NameId name, FormulaId then);
  FormulaId one_of(Place place, size_t parts);
  std::vector<SchemaNode> references(Place place);
  TypeMask type_named(Place place, const JsonValue& name, bool& integer) const;
  size_t list_size(Place place, std::string_view keyword) const;
  RegexId pattern(Place place, std::string_view keyword, const std::string& text);

  bool has_unevaluated(Place place) const;
  Branches branches(Place place);
  Branches branches_of(SchemaNode node, uint32_t scope);
  Branches any_branches(Place place);
  Branches one_branches(Place place);
  Branches if_branches(Place place);
  Branches dependent_branches(Place place);
  Branches product(Place place, const Branches& left, const Branches& right) const;
  Evaluated locally_evaluated(Place place);
  void apply_unevaluated(Place place, Branch& branch);
  KeySet others(const std::vector<NameId>& names, const std::vector<RegexId>& patterns);

  SchemaDocument& document_;
  FormulaStore& formulas_;
  SchemaFormulaOptions options_;
  std::vector<Scope> scopes_;
  std::map<Scope, uint32_t> scope_ids_;
  FlatMap expanded_;        ///< by node and scope
  uint32_t next_rank_ = 0;  ///< of the properties, in the order of reading
  std::map<FormulaId, RegexId> languages_;
  std::set<std::pair<SchemaNode, uint32_t>> open_;  ///< being read: a schema that is its own part
};

}  // namespace specdec
