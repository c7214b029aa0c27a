// The meta-schemas of JSON Schema, as json-schema.org publishes them (BSD or AFL licence), so that
// a schema may refer to them without a network. Titles and comments are left out.
#include "grammar/meta_schemas.h"

#include <array>

namespace specdec {
namespace {

struct MetaSchema {
  std::string_view uri;
  std::string_view text;
};

constexpr std::array kMetaSchemas = {
    MetaSchema{
        "http://json-schema.org/draft-04/schema",
        R"({"id":"http://json-schema.org/draft-04/schema#","$schema":"http://json-schema.org/draft-)"
        R"(04/schema#","definitions":{"schemaArray":{"type":"array","minItems":1,"items":{"$ref":"#)"
        R"("}},"positiveInteger":{"type":"integer","minimum":0},"positiveIntegerDefault0":{"allOf":)"
        R"([{"$ref":"#/definitions/positiveInteger"},{"default":0}]},"simpleTypes":{"enum":["array")"
        R"(,"boolean","integer","null","number","object","string"]},"stringArray":{"type":"array",")"
        R"(items":{"type":"string"},"minItems":1,"uniqueItems":true}},"type":"object","properties":)"
        R"({"id":{"type":"string"},"$schema":{"type":"string"},"title":{"type":"string"},"descripti)"
        R"(on":{"type":"string"},"default":{},"multipleOf":{"type":"number","minimum":0,"exclusiveM)"
        R"(inimum":true},"maximum":{"type":"number"},"exclusiveMaximum":{"type":"boolean","default")"
        R"(:false},"minimum":{"type":"number"},"exclusiveMinimum":{"type":"boolean","default":false)"
        R"(},"maxLength":{"$ref":"#/definitions/positiveInteger"},"minLength":{"$ref":"#/definition)"
        R"(s/positiveIntegerDefault0"},"pattern":{"type":"string","format":"regex"},"additionalItem)"
        R"(s":{"anyOf":[{"type":"boolean"},{"$ref":"#"}],"default":{}},"items":{"anyOf":[{"$ref":"#)"
        R"("},{"$ref":"#/definitions/schemaArray"}],"default":{}},"maxItems":{"$ref":"#/definitions)"
        R"(/positiveInteger"},"minItems":{"$ref":"#/definitions/positiveIntegerDefault0"},"uniqueIt)"
        R"(ems":{"type":"boolean","default":false},"maxProperties":{"$ref":"#/definitions/positiveI)"
        R"(nteger"},"minProperties":{"$ref":"#/definitions/positiveIntegerDefault0"},"required":{"$)"
        R"(ref":"#/definitions/stringArray"},"additionalProperties":{"anyOf":[{"type":"boolean"},{")"
        R"($ref":"#"}],"default":{}},"definitions":{"type":"object","additionalProperties":{"$ref":)"
        R"("#"},"default":{}},"properties":{"type":"object","additionalProperties":{"$ref":"#"},"de)"
        R"(fault":{}},"patternProperties":{"type":"object","additionalProperties":{"$ref":"#"},"def)"
        R"(ault":{}},"dependencies":{"type":"object","additionalProperties":{"anyOf":[{"$ref":"#"},)"
        R"({"$ref":"#/definitions/stringArray"}]}},"enum":{"type":"array","minItems":1,"uniqueItems)"
        R"(":true},"type":{"anyOf":[{"$ref":"#/definitions/simpleTypes"},{"type":"array","items":{")"
        R"($ref":"#/definitions/simpleTypes"},"minItems":1,"uniqueItems":true}]},"format":{"type":")"
        R"(string"},"allOf":{"$ref":"#/definitions/schemaArray"},"anyOf":{"$ref":"#/definitions/sch)"
        R"(emaArray"},"oneOf":{"$ref":"#/definitions/schemaArray"},"not":{"$ref":"#"}},"dependencie)"
        R"(s":{"exclusiveMaximum":["maximum"],"exclusiveMinimum":["minimum"]},"default":{}})"},
    MetaSchema{
        "http://json-schema.org/draft-06/schema",
        R"({"$schema":"http://json-schema.org/draft-06/schema#","$id":"http://json-schema.org/draft)"
        R"(-06/schema#","title":"Core schema meta-schema","definitions":{"schemaArray":{"type":"arr)"
        R"(ay","minItems":1,"items":{"$ref":"#"}},"nonNegativeInteger":{"type":"integer","minimum":)"
        R"(0},"nonNegativeIntegerDefault0":{"allOf":[{"$ref":"#/definitions/nonNegativeInteger"},{")"
        R"(default":0}]},"simpleTypes":{"enum":["array","boolean","integer","null","number","object)"
        R"(","string"]},"stringArray":{"type":"array","items":{"type":"string"},"uniqueItems":true,)"
        R"("default":[]}},"type":["object","boolean"],"properties":{"$id":{"type":"string","format")"
        R"(:"uri-reference"},"$schema":{"type":"string","format":"uri"},"$ref":{"type":"string","fo)"
        R"(rmat":"uri-reference"},"title":{"type":"string"},"description":{"type":"string"},"defaul)"
        R"(t":{},"examples":{"type":"array","items":{}},"multipleOf":{"type":"number","exclusiveMin)"
        R"(imum":0},"maximum":{"type":"number"},"exclusiveMaximum":{"type":"number"},"minimum":{"ty)"
        R"(pe":"number"},"exclusiveMinimum":{"type":"number"},"maxLength":{"$ref":"#/definitions/no)"
        R"(nNegativeInteger"},"minLength":{"$ref":"#/definitions/nonNegativeIntegerDefault0"},"patt)"
        R"(ern":{"type":"string","format":"regex"},"additionalItems":{"$ref":"#"},"items":{"anyOf":)"
        R"([{"$ref":"#"},{"$ref":"#/definitions/schemaArray"}],"default":{}},"maxItems":{"$ref":"#/)"
        R"(definitions/nonNegativeInteger"},"minItems":{"$ref":"#/definitions/nonNegativeIntegerDef)"
        R"(ault0"},"uniqueItems":{"type":"boolean","default":false},"contains":{"$ref":"#"},"maxPro)"
        R"(perties":{"$ref":"#/definitions/nonNegativeInteger"},"minProperties":{"$ref":"#/definiti)"
        R"(ons/nonNegativeIntegerDefault0"},"required":{"$ref":"#/definitions/stringArray"},"additi)"
        R"(onalProperties":{"$ref":"#"},"definitions":{"type":"object","additionalProperties":{"$re)"
        R"(f":"#"},"default":{}},"properties":{"type":"object","additionalProperties":{"$ref":"#"},)"
        R"("default":{}},"patternProperties":{"type":"object","additionalProperties":{"$ref":"#"},")"
        R"(propertyNames":{"format":"regex"},"default":{}},"dependencies":{"type":"object","additio)"
        R"(nalProperties":{"anyOf":[{"$ref":"#"},{"$ref":"#/definitions/stringArray"}]}},"propertyN)"
        R"(ames":{"$ref":"#"},"const":{},"enum":{"type":"array"},"type":{"anyOf":[{"$ref":"#/defini)"
        R"(tions/simpleTypes"},{"type":"array","items":{"$ref":"#/definitions/simpleTypes"},"minIte)"
        R"(ms":1,"uniqueItems":true}]},"format":{"type":"string"},"allOf":{"$ref":"#/definitions/sc)"
        R"(hemaArray"},"anyOf":{"$ref":"#/definitions/schemaArray"},"oneOf":{"$ref":"#/definitions/)"
        R"(schemaArray"},"not":{"$ref":"#"}},"default":{}})"},
    MetaSchema{
        "http://json-schema.org/draft-07/schema",
        R"({"$schema":"http://json-schema.org/draft-07/schema#","$id":"http://json-schema.org/draft)"
        R"(-07/schema#","title":"Core schema meta-schema","definitions":{"schemaArray":{"type":"arr)"
        R"(ay","minItems":1,"items":{"$ref":"#"}},"nonNegativeInteger":{"type":"integer","minimum":)"
        R"(0},"nonNegativeIntegerDefault0":{"allOf":[{"$ref":"#/definitions/nonNegativeInteger"},{")"
        R"(default":0}]},"simpleTypes":{"enum":["array","boolean","integer","null","number","object)"
        R"(","string"]},"stringArray":{"type":"array","items":{"type":"string"},"uniqueItems":true,)"
        R"("default":[]}},"type":["object","boolean"],"properties":{"$id":{"type":"string","format")"
        R"(:"uri-reference"},"$schema":{"type":"string","format":"uri"},"$ref":{"type":"string","fo)"
        R"(rmat":"uri-reference"},"$comment":{"type":"string"},"title":{"type":"string"},"descripti)"
        R"(on":{"type":"string"},"default":true,"readOnly":{"type":"boolean","default":false},"exam)"
        R"(ples":{"type":"array","items":true},"multipleOf":{"type":"number","exclusiveMinimum":0},)"
        R"("maximum":{"type":"number"},"exclusiveMaximum":{"type":"number"},"minimum":{"type":"numb)"
        R"(er"},"exclusiveMinimum":{"type":"number"},"maxLength":{"$ref":"#/definitions/nonNegative)"
        R"(Integer"},"minLength":{"$ref":"#/definitions/nonNegativeIntegerDefault0"},"pattern":{"ty)"
        R"(pe":"string","format":"regex"},"additionalItems":{"$ref":"#"},"items":{"anyOf":[{"$ref":)"
        R"("#"},{"$ref":"#/definitions/schemaArray"}],"default":true},"maxItems":{"$ref":"#/definit)"
        R"(ions/nonNegativeInteger"},"minItems":{"$ref":"#/definitions/nonNegativeIntegerDefault0"})"
        R"(,"uniqueItems":{"type":"boolean","default":false},"contains":{"$ref":"#"},"maxProperties)"
        R"(":{"$ref":"#/definitions/nonNegativeInteger"},"minProperties":{"$ref":"#/definitions/non)"
        R"(NegativeIntegerDefault0"},"required":{"$ref":"#/definitions/stringArray"},"additionalPro)"
        R"(perties":{"$ref":"#"},"definitions":{"type":"object","additionalProperties":{"$ref":"#"})"
        R"(,"default":{}},"properties":{"type":"object","additionalProperties":{"$ref":"#"},"defaul)"
        R"(t":{}},"patternProperties":{"type":"object","additionalProperties":{"$ref":"#"},"propert)"
        R"(yNames":{"format":"regex"},"default":{}},"dependencies":{"type":"object","additionalProp)"
        R"(erties":{"anyOf":[{"$ref":"#"},{"$ref":"#/definitions/stringArray"}]}},"propertyNames":{)"
        R"("$ref":"#"},"const":true,"enum":{"type":"array","items":true},"type":{"anyOf":[{"$ref":")"
        R"(#/definitions/simpleTypes"},{"type":"array","items":{"$ref":"#/definitions/simpleTypes"})"
        R"(,"minItems":1,"uniqueItems":true}]},"format":{"type":"string"},"contentMediaType":{"type)"
        R"(":"string"},"contentEncoding":{"type":"string"},"if":{"$ref":"#"},"then":{"$ref":"#"},"e)"
        R"(lse":{"$ref":"#"},"allOf":{"$ref":"#/definitions/schemaArray"},"anyOf":{"$ref":"#/defini)"
        R"(tions/schemaArray"},"oneOf":{"$ref":"#/definitions/schemaArray"},"not":{"$ref":"#"}},"de)"
        R"(fault":true})"},
    MetaSchema{
        "https://json-schema.org/draft/2019-09/schema",
        R"({"$schema":"https://json-schema.org/draft/2019-09/schema","$id":"https://json-schema.org)"
        R"(/draft/2019-09/schema","$vocabulary":{"https://json-schema.org/draft/2019-09/vocab/core")"
        R"(:true,"https://json-schema.org/draft/2019-09/vocab/applicator":true,"https://json-schema)"
        R"(.org/draft/2019-09/vocab/validation":true,"https://json-schema.org/draft/2019-09/vocab/m)"
        R"(eta-data":true,"https://json-schema.org/draft/2019-09/vocab/format":false,"https://json-)"
        R"(schema.org/draft/2019-09/vocab/content":true},"$recursiveAnchor":true,"title":"Core and )"
        R"(Validation specifications meta-schema","allOf":[{"$ref":"meta/core"},{"$ref":"meta/appli)"
        R"(cator"},{"$ref":"meta/validation"},{"$ref":"meta/meta-data"},{"$ref":"meta/format"},{"$r)"
        R"(ef":"meta/content"}],"type":["object","boolean"],"properties":{"definitions":{"type":"ob)"
        R"(ject","additionalProperties":{"$recursiveRef":"#"},"default":{}},"dependencies":{"type":)"
        R"("object","additionalProperties":{"anyOf":[{"$recursiveRef":"#"},{"$ref":"meta/validation)"
        R"(#/$defs/stringArray"}]}}}})"},
    MetaSchema{
        "https://json-schema.org/draft/2020-12/schema",
        R"({"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"https://json-schema.org)"
        R"(/draft/2020-12/schema","$vocabulary":{"https://json-schema.org/draft/2020-12/vocab/core")"
        R"(:true,"https://json-schema.org/draft/2020-12/vocab/applicator":true,"https://json-schema)"
        R"(.org/draft/2020-12/vocab/unevaluated":true,"https://json-schema.org/draft/2020-12/vocab/)"
        R"(validation":true,"https://json-schema.org/draft/2020-12/vocab/meta-data":true,"https://j)"
        R"(son-schema.org/draft/2020-12/vocab/format-annotation":true,"https://json-schema.org/draf)"
        R"(t/2020-12/vocab/content":true},"$dynamicAnchor":"meta","title":"Core and Validation spec)"
        R"(ifications meta-schema","allOf":[{"$ref":"meta/core"},{"$ref":"meta/applicator"},{"$ref")"
        R"(:"meta/unevaluated"},{"$ref":"meta/validation"},{"$ref":"meta/meta-data"},{"$ref":"meta/)"
        R"(format-annotation"},{"$ref":"meta/content"}],"type":["object","boolean"],"properties":{")"
        R"(definitions":{"type":"object","additionalProperties":{"$dynamicRef":"#meta"},"deprecated)"
        R"(":true,"default":{}},"dependencies":{"type":"object","additionalProperties":{"anyOf":[{")"
        R"($dynamicRef":"#meta"},{"$ref":"meta/validation#/$defs/stringArray"}]},"deprecated":true,)"
        R"("default":{}},"$recursiveAnchor":{"$ref":"meta/core#/$defs/anchorString","deprecated":tr)"
        R"(ue},"$recursiveRef":{"$ref":"meta/core#/$defs/uriReferenceString","deprecated":true}}})"},
    MetaSchema{
        "https://json-schema.org/draft/2019-09/meta/applicator",
        R"({"$schema":"https://json-schema.org/draft/2019-09/schema","$id":"https://json-schema.org)"
        R"(/draft/2019-09/meta/applicator","$vocabulary":{"https://json-schema.org/draft/2019-09/vo)"
        R"(cab/applicator":true},"$recursiveAnchor":true,"title":"Applicator vocabulary meta-schema)"
        R"(","type":["object","boolean"],"properties":{"additionalItems":{"$recursiveRef":"#"},"une)"
        R"(valuatedItems":{"$recursiveRef":"#"},"items":{"anyOf":[{"$recursiveRef":"#"},{"$ref":"#/)"
        R"($defs/schemaArray"}]},"contains":{"$recursiveRef":"#"},"additionalProperties":{"$recursi)"
        R"(veRef":"#"},"unevaluatedProperties":{"$recursiveRef":"#"},"properties":{"type":"object",)"
        R"("additionalProperties":{"$recursiveRef":"#"},"default":{}},"patternProperties":{"type":")"
        R"(object","additionalProperties":{"$recursiveRef":"#"},"propertyNames":{"format":"regex"},)"
        R"("default":{}},"dependentSchemas":{"type":"object","additionalProperties":{"$recursiveRef)"
        R"(":"#"}},"propertyNames":{"$recursiveRef":"#"},"if":{"$recursiveRef":"#"},"then":{"$recur)"
        R"(siveRef":"#"},"else":{"$recursiveRef":"#"},"allOf":{"$ref":"#/$defs/schemaArray"},"anyOf)"
        R"(":{"$ref":"#/$defs/schemaArray"},"oneOf":{"$ref":"#/$defs/schemaArray"},"not":{"$recursi)"
        R"(veRef":"#"}},"$defs":{"schemaArray":{"type":"array","minItems":1,"items":{"$recursiveRef)"
        R"(":"#"}}}})"},
    MetaSchema{
        "https://json-schema.org/draft/2019-09/meta/content",
        R"({"$schema":"https://json-schema.org/draft/2019-09/schema","$id":"https://json-schema.org)"
        R"(/draft/2019-09/meta/content","$vocabulary":{"https://json-schema.org/draft/2019-09/vocab)"
        R"(/content":true},"$recursiveAnchor":true,"title":"Content vocabulary meta-schema","type":)"
        R"(["object","boolean"],"properties":{"contentMediaType":{"type":"string"},"contentEncoding)"
        R"(":{"type":"string"},"contentSchema":{"$recursiveRef":"#"}}})"},
    MetaSchema{
        "https://json-schema.org/draft/2019-09/meta/core",
        R"({"$schema":"https://json-schema.org/draft/2019-09/schema","$id":"https://json-schema.org)"
        R"(/draft/2019-09/meta/core","$vocabulary":{"https://json-schema.org/draft/2019-09/vocab/co)"
        R"(re":true},"$recursiveAnchor":true,"title":"Core vocabulary meta-schema","type":["object")"
        R"(,"boolean"],"properties":{"$id":{"type":"string","format":"uri-reference","pattern":"^[^)"
        R"(#]*#?$"},"$schema":{"type":"string","format":"uri"},"$anchor":{"type":"string","pattern")"
        R"(:"^[A-Za-z][-A-Za-z0-9.:_]*$"},"$ref":{"type":"string","format":"uri-reference"},"$recur)"
        R"(siveRef":{"type":"string","format":"uri-reference"},"$recursiveAnchor":{"type":"boolean")"
        R"(,"default":false},"$vocabulary":{"type":"object","propertyNames":{"type":"string","forma)"
        R"(t":"uri"},"additionalProperties":{"type":"boolean"}},"$comment":{"type":"string"},"$defs)"
        R"(":{"type":"object","additionalProperties":{"$recursiveRef":"#"},"default":{}}}})"},
    MetaSchema{
        "https://json-schema.org/draft/2019-09/meta/format",
        R"({"$schema":"https://json-schema.org/draft/2019-09/schema","$id":"https://json-schema.org)"
        R"(/draft/2019-09/meta/format","$vocabulary":{"https://json-schema.org/draft/2019-09/vocab/)"
        R"(format":true},"$recursiveAnchor":true,"title":"Format vocabulary meta-schema","type":["o)"
        R"(bject","boolean"],"properties":{"format":{"type":"string"}}})"},
    MetaSchema{
        "https://json-schema.org/draft/2019-09/meta/meta-data",
        R"({"$schema":"https://json-schema.org/draft/2019-09/schema","$id":"https://json-schema.org)"
        R"(/draft/2019-09/meta/meta-data","$vocabulary":{"https://json-schema.org/draft/2019-09/voc)"
        R"(ab/meta-data":true},"$recursiveAnchor":true,"title":"Meta-data vocabulary meta-schema",")"
        R"(type":["object","boolean"],"properties":{"title":{"type":"string"},"description":{"type")"
        R"(:"string"},"default":true,"deprecated":{"type":"boolean","default":false},"readOnly":{"t)"
        R"(ype":"boolean","default":false},"writeOnly":{"type":"boolean","default":false},"examples)"
        R"(":{"type":"array","items":true}}})"},
    MetaSchema{
        "https://json-schema.org/draft/2019-09/meta/validation",
        R"({"$schema":"https://json-schema.org/draft/2019-09/schema","$id":"https://json-schema.org)"
        R"(/draft/2019-09/meta/validation","$vocabulary":{"https://json-schema.org/draft/2019-09/vo)"
        R"(cab/validation":true},"$recursiveAnchor":true,"title":"Validation vocabulary meta-schema)"
        R"(","type":["object","boolean"],"properties":{"multipleOf":{"type":"number","exclusiveMini)"
        R"(mum":0},"maximum":{"type":"number"},"exclusiveMaximum":{"type":"number"},"minimum":{"typ)"
        R"(e":"number"},"exclusiveMinimum":{"type":"number"},"maxLength":{"$ref":"#/$defs/nonNegati)"
        R"(veInteger"},"minLength":{"$ref":"#/$defs/nonNegativeIntegerDefault0"},"pattern":{"type":)"
        R"("string","format":"regex"},"maxItems":{"$ref":"#/$defs/nonNegativeInteger"},"minItems":{)"
        R"("$ref":"#/$defs/nonNegativeIntegerDefault0"},"uniqueItems":{"type":"boolean","default":f)"
        R"(alse},"maxContains":{"$ref":"#/$defs/nonNegativeInteger"},"minContains":{"$ref":"#/$defs)"
        R"(/nonNegativeInteger","default":1},"maxProperties":{"$ref":"#/$defs/nonNegativeInteger"},)"
        R"("minProperties":{"$ref":"#/$defs/nonNegativeIntegerDefault0"},"required":{"$ref":"#/$def)"
        R"(s/stringArray"},"dependentRequired":{"type":"object","additionalProperties":{"$ref":"#/$)"
        R"(defs/stringArray"}},"const":true,"enum":{"type":"array","items":true},"type":{"anyOf":[{)"
        R"("$ref":"#/$defs/simpleTypes"},{"type":"array","items":{"$ref":"#/$defs/simpleTypes"},"mi)"
        R"(nItems":1,"uniqueItems":true}]}},"$defs":{"nonNegativeInteger":{"type":"integer","minimu)"
        R"(m":0},"nonNegativeIntegerDefault0":{"$ref":"#/$defs/nonNegativeInteger","default":0},"si)"
        R"(mpleTypes":{"enum":["array","boolean","integer","null","number","object","string"]},"str)"
        R"(ingArray":{"type":"array","items":{"type":"string"},"uniqueItems":true,"default":[]}}})"},
    MetaSchema{
        "https://json-schema.org/draft/2020-12/meta/applicator",
        R"({"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"https://json-schema.org)"
        R"(/draft/2020-12/meta/applicator","$vocabulary":{"https://json-schema.org/draft/2020-12/vo)"
        R"(cab/applicator":true},"$dynamicAnchor":"meta","title":"Applicator vocabulary meta-schema)"
        R"(","type":["object","boolean"],"properties":{"prefixItems":{"$ref":"#/$defs/schemaArray"})"
        R"(,"items":{"$dynamicRef":"#meta"},"contains":{"$dynamicRef":"#meta"},"additionalPropertie)"
        R"(s":{"$dynamicRef":"#meta"},"properties":{"type":"object","additionalProperties":{"$dynam)"
        R"(icRef":"#meta"},"default":{}},"patternProperties":{"type":"object","additionalProperties)"
        R"(":{"$dynamicRef":"#meta"},"propertyNames":{"format":"regex"},"default":{}},"dependentSch)"
        R"(emas":{"type":"object","additionalProperties":{"$dynamicRef":"#meta"},"default":{}},"pro)"
        R"(pertyNames":{"$dynamicRef":"#meta"},"if":{"$dynamicRef":"#meta"},"then":{"$dynamicRef":")"
        R"(#meta"},"else":{"$dynamicRef":"#meta"},"allOf":{"$ref":"#/$defs/schemaArray"},"anyOf":{")"
        R"($ref":"#/$defs/schemaArray"},"oneOf":{"$ref":"#/$defs/schemaArray"},"not":{"$dynamicRef")"
        R"(:"#meta"}},"$defs":{"schemaArray":{"type":"array","minItems":1,"items":{"$dynamicRef":"#)"
        R"(meta"}}}})"},
    MetaSchema{
        "https://json-schema.org/draft/2020-12/meta/content",
        R"({"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"https://json-schema.org)"
        R"(/draft/2020-12/meta/content","$vocabulary":{"https://json-schema.org/draft/2020-12/vocab)"
        R"(/content":true},"$dynamicAnchor":"meta","title":"Content vocabulary meta-schema","type":)"
        R"(["object","boolean"],"properties":{"contentEncoding":{"type":"string"},"contentMediaType)"
        R"(":{"type":"string"},"contentSchema":{"$dynamicRef":"#meta"}}})"},
    MetaSchema{
        "https://json-schema.org/draft/2020-12/meta/core",
        R"({"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"https://json-schema.org)"
        R"(/draft/2020-12/meta/core","$vocabulary":{"https://json-schema.org/draft/2020-12/vocab/co)"
        R"(re":true},"$dynamicAnchor":"meta","title":"Core vocabulary meta-schema","type":["object")"
        R"(,"boolean"],"properties":{"$id":{"$ref":"#/$defs/uriReferenceString","pattern":"^[^#]*#?)"
        R"($"},"$schema":{"$ref":"#/$defs/uriString"},"$ref":{"$ref":"#/$defs/uriReferenceString"},)"
        R"("$anchor":{"$ref":"#/$defs/anchorString"},"$dynamicRef":{"$ref":"#/$defs/uriReferenceStr)"
        R"(ing"},"$dynamicAnchor":{"$ref":"#/$defs/anchorString"},"$vocabulary":{"type":"object","p)"
        R"(ropertyNames":{"$ref":"#/$defs/uriString"},"additionalProperties":{"type":"boolean"}},"$)"
        R"(comment":{"type":"string"},"$defs":{"type":"object","additionalProperties":{"$dynamicRef)"
        R"(":"#meta"}}},"$defs":{"anchorString":{"type":"string","pattern":"^[A-Za-z_][-A-Za-z0-9._)"
        R"(]*$"},"uriString":{"type":"string","format":"uri"},"uriReferenceString":{"type":"string")"
        R"(,"format":"uri-reference"}}})"},
    MetaSchema{
        "https://json-schema.org/draft/2020-12/meta/format-annotation",
        R"({"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"https://json-schema.org)"
        R"(/draft/2020-12/meta/format-annotation","$vocabulary":{"https://json-schema.org/draft/202)"
        R"(0-12/vocab/format-annotation":true},"$dynamicAnchor":"meta","title":"Format vocabulary m)"
        R"(eta-schema for annotation results","type":["object","boolean"],"properties":{"format":{")"
        R"(type":"string"}}})"},
    MetaSchema{
        "https://json-schema.org/draft/2020-12/meta/format-assertion",
        R"({"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"https://json-schema.org)"
        R"(/draft/2020-12/meta/format-assertion","$vocabulary":{"https://json-schema.org/draft/2020)"
        R"(-12/vocab/format-assertion":true},"$dynamicAnchor":"meta","title":"Format vocabulary met)"
        R"(a-schema for assertion results","type":["object","boolean"],"properties":{"format":{"typ)"
        R"(e":"string"}}})"},
    MetaSchema{
        "https://json-schema.org/draft/2020-12/meta/meta-data",
        R"({"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"https://json-schema.org)"
        R"(/draft/2020-12/meta/meta-data","$vocabulary":{"https://json-schema.org/draft/2020-12/voc)"
        R"(ab/meta-data":true},"$dynamicAnchor":"meta","title":"Meta-data vocabulary meta-schema",")"
        R"(type":["object","boolean"],"properties":{"title":{"type":"string"},"description":{"type")"
        R"(:"string"},"default":true,"deprecated":{"type":"boolean","default":false},"readOnly":{"t)"
        R"(ype":"boolean","default":false},"writeOnly":{"type":"boolean","default":false},"examples)"
        R"(":{"type":"array","items":true}}})"},
    MetaSchema{
        "https://json-schema.org/draft/2020-12/meta/unevaluated",
        R"({"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"https://json-schema.org)"
        R"(/draft/2020-12/meta/unevaluated","$vocabulary":{"https://json-schema.org/draft/2020-12/v)"
        R"(ocab/unevaluated":true},"$dynamicAnchor":"meta","title":"Unevaluated applicator vocabula)"
        R"(ry meta-schema","type":["object","boolean"],"properties":{"unevaluatedItems":{"$dynamicR)"
        R"(ef":"#meta"},"unevaluatedProperties":{"$dynamicRef":"#meta"}}})"},
    MetaSchema{
        "https://json-schema.org/draft/2020-12/meta/validation",
        R"({"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"https://json-schema.org)"
        R"(/draft/2020-12/meta/validation","$vocabulary":{"https://json-schema.org/draft/2020-12/vo)"
        R"(cab/validation":true},"$dynamicAnchor":"meta","title":"Validation vocabulary meta-schema)"
        R"(","type":["object","boolean"],"properties":{"type":{"anyOf":[{"$ref":"#/$defs/simpleType)"
        R"(s"},{"type":"array","items":{"$ref":"#/$defs/simpleTypes"},"minItems":1,"uniqueItems":tr)"
        R"(ue}]},"const":true,"enum":{"type":"array","items":true},"multipleOf":{"type":"number","e)"
        R"(xclusiveMinimum":0},"maximum":{"type":"number"},"exclusiveMaximum":{"type":"number"},"mi)"
        R"(nimum":{"type":"number"},"exclusiveMinimum":{"type":"number"},"maxLength":{"$ref":"#/$de)"
        R"(fs/nonNegativeInteger"},"minLength":{"$ref":"#/$defs/nonNegativeIntegerDefault0"},"patte)"
        R"(rn":{"type":"string","format":"regex"},"maxItems":{"$ref":"#/$defs/nonNegativeInteger"},)"
        R"("minItems":{"$ref":"#/$defs/nonNegativeIntegerDefault0"},"uniqueItems":{"type":"boolean")"
        R"(,"default":false},"maxContains":{"$ref":"#/$defs/nonNegativeInteger"},"minContains":{"$r)"
        R"(ef":"#/$defs/nonNegativeInteger","default":1},"maxProperties":{"$ref":"#/$defs/nonNegati)"
        R"(veInteger"},"minProperties":{"$ref":"#/$defs/nonNegativeIntegerDefault0"},"required":{"$)"
        R"(ref":"#/$defs/stringArray"},"dependentRequired":{"type":"object","additionalProperties":)"
        R"({"$ref":"#/$defs/stringArray"}}},"$defs":{"nonNegativeInteger":{"type":"integer","minimu)"
        R"(m":0},"nonNegativeIntegerDefault0":{"$ref":"#/$defs/nonNegativeInteger","default":0},"si)"
        R"(mpleTypes":{"enum":["array","boolean","integer","null","number","object","string"]},"str)"
        R"(ingArray":{"type":"array","items":{"type":"string"},"uniqueItems":true,"default":[]}}})"},
};

}  // namespace

std::optional<std::string_view> meta_schema(std::string_view uri) {
  for (const MetaSchema& known : kMetaSchemas) {
    if (known.uri == uri) {
      return known.text;
    }
  }
  return std::nullopt;
}

}  // namespace specdec
