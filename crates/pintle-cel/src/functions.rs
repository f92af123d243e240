//! The declarations of all functions that Kubernetes 1.36 has.
//!
//! The table is text, one overload per line: function, overload, parameters and result. A dot
//! before the parameters marks a member function, whose first parameter is the target. Capital
//! letters are type variables. The order of overloads is that of cel-go, because the first match
//! determines the type of an ambiguous call.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use crate::types::{Record, Type};

/// One signature of a function.
#[derive(Debug)]
pub(crate) struct Overload {
    pub(crate) id: &'static str,
    pub(crate) member: bool,
    pub(crate) params: Vec<Type>,
    pub(crate) result: Type,
    /// The number of type variables.
    pub(crate) vars: usize,
}

/// Returns the overloads of a function.
pub(crate) fn find(name: &str) -> Option<&'static [Overload]> {
    FUNCTIONS.get(name).map(Vec::as_slice)
}

static FUNCTIONS: LazyLock<BTreeMap<&'static str, Vec<Overload>>> = LazyLock::new(|| {
    let mut functions: BTreeMap<&'static str, Vec<Overload>> = BTreeMap::new();
    for table in [
        STANDARD,
        COMPARE,
        OPTIONAL,
        EXTENSIONS,
        KUBERNETES,
        TYPED_LISTS,
    ] {
        for line in table.lines() {
            let mut words = line.split_whitespace();
            let (Some(name), Some(id)) = (words.next(), words.next()) else {
                continue;
            };
            let (Some(params), Some(result)) = (words.next(), words.next()) else {
                continue;
            };
            let mut vars = Vec::new();
            let (member, params) = match params.strip_prefix('.') {
                Some(rest) => (true, rest),
                None => (false, params),
            };
            let mut reader = Reader {
                text: params.as_bytes(),
                at: 1,
                vars: &mut vars,
            };
            let params = reader.list(b')');
            let mut reader = Reader {
                text: result.as_bytes(),
                at: 0,
                vars: &mut vars,
            };
            let result = reader.read();
            let overload = Overload {
                id,
                member,
                params,
                result,
                vars: vars.len(),
            };
            functions.entry(name).or_default().push(overload);
        }
    }
    functions
});

/// Reads types of the table.
struct Reader<'t, 'v> {
    text: &'t [u8],
    at: usize,
    vars: &'v mut Vec<u8>,
}

impl Reader<'_, '_> {
    fn list(&mut self, end: u8) -> Vec<Type> {
        let mut types = Vec::new();
        while let Some(&c) = self.text.get(self.at) {
            if c == end {
                self.at += 1;
                break;
            }
            if c == b',' {
                self.at += 1;
                continue;
            }
            types.push(self.read());
        }
        types
    }

    fn read(&mut self) -> Type {
        let start = self.at;
        let word = |c: &u8| c.is_ascii_alphanumeric() || *c == b'.' || *c == b'_';
        while self.text.get(self.at).is_some_and(word) {
            self.at += 1;
        }
        let name = &self.text[start..self.at];
        if self.at == start {
            self.at += 1;
            return Type::Dyn;
        }
        if let [var] = name
            && var.is_ascii_uppercase()
        {
            let n = self
                .vars
                .iter()
                .position(|known| known == var)
                .unwrap_or_else(|| {
                    self.vars.push(*var);
                    self.vars.len() - 1
                });
            return Type::Param(u32::try_from(n).unwrap_or_default());
        }
        let mut inner = Vec::new();
        if self.text.get(self.at) == Some(&b'(') {
            self.at += 1;
            inner = self.list(b')');
        }
        let mut inner = inner.into_iter().map(Arc::new);
        let mut next = || inner.next().unwrap_or_else(|| Arc::new(Type::Dyn));
        match name {
            b"bool" => Type::Bool,
            b"int" => Type::Int,
            b"uint" => Type::Uint,
            b"double" => Type::Double,
            b"string" => Type::String,
            b"bytes" => Type::Bytes,
            b"null" => Type::Null,
            b"duration" => Type::Duration,
            b"timestamp" => Type::Timestamp,
            b"list" => Type::List(next()),
            b"map" => {
                let key = next();
                Type::Map(key, next())
            }
            b"optional" => Type::Optional(next()),
            b"type" => Type::Type(Some(next())),
            b"ip" => Type::Opaque("net.IP"),
            b"cidr" => Type::Opaque("net.CIDR"),
            b"url" => Type::Struct("kubernetes.URL"),
            b"quantity" => Type::Struct("kubernetes.Quantity"),
            b"format" => Type::Struct("kubernetes.NamedFormat"),
            b"semver" => Type::Struct("kubernetes.Semver"),
            b"authorizer" => Type::Struct("kubernetes.authorization.Authorizer"),
            b"pathcheck" => Type::Struct("kubernetes.authorization.PathCheck"),
            b"groupcheck" => Type::Struct("kubernetes.authorization.GroupCheck"),
            b"resourcecheck" => Type::Struct("kubernetes.authorization.ResourceCheck"),
            b"decision" => Type::Struct("kubernetes.authorization.Decision"),
            _ => Type::Dyn,
        }
    }
}

/// The function that only expressions with the types of patches may call.
pub(crate) const ESCAPE_KEY: &str = "jsonpatch.escapeKey";

/// Returns the type of patches that a name stands for: `JSONPatch`, `Object`, or a field below it
/// such as `Object.spec`, which no schema describes.
pub(crate) fn patch_type(name: &str) -> Option<Record> {
    if name == "JSONPatch" {
        let texts = ["op", "from", "path"].map(|name| (name, Type::String));
        let fields = texts.into_iter().chain([("value", Type::Dyn)]);
        return Some(Record::new(name, fields));
    }
    let rest = name.strip_prefix("Object")?;
    (rest.is_empty() || rest.starts_with('.')).then(|| Record::open(name))
}

/// Returns the type that an identifier names, such as `int`.
pub(crate) fn type_name(name: &str) -> Option<Type> {
    Some(match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "string" => Type::String,
        "null_type" => Type::Null,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "type" => Type::Type(None),
        "optional_type" => Type::optional(Type::Dyn),
        "google.protobuf.Duration" => Type::Duration,
        "google.protobuf.Timestamp" => Type::Timestamp,
        "net.IP" => Type::Opaque("net.IP"),
        "net.CIDR" => Type::Opaque("net.CIDR"),
        _ => return None,
    })
}

const STANDARD: &str = "
_?_:_ conditional (bool,A,A) A
_&&_ logical_and (bool,bool) bool
_||_ logical_or (bool,bool) bool
!_ logical_not (bool) bool
@not_strictly_false not_strictly_false (bool) bool
_==_ equals (A,A) bool
_!=_ not_equals (A,A) bool
_+_ add_bytes (bytes,bytes) bytes
_+_ add_double (double,double) double
_+_ add_duration_duration (duration,duration) duration
_+_ add_duration_timestamp (duration,timestamp) timestamp
_+_ add_timestamp_duration (timestamp,duration) timestamp
_+_ add_int64 (int,int) int
_+_ add_list (list(A),list(A)) list(A)
_+_ add_string (string,string) string
_+_ add_uint64 (uint,uint) uint
_/_ divide_double (double,double) double
_/_ divide_int64 (int,int) int
_/_ divide_uint64 (uint,uint) uint
_%_ modulo_int64 (int,int) int
_%_ modulo_uint64 (uint,uint) uint
_*_ multiply_double (double,double) double
_*_ multiply_int64 (int,int) int
_*_ multiply_uint64 (uint,uint) uint
-_ negate_double (double) double
-_ negate_int64 (int) int
_-_ subtract_double (double,double) double
_-_ subtract_duration_duration (duration,duration) duration
_-_ subtract_int64 (int,int) int
_-_ subtract_timestamp_duration (timestamp,duration) timestamp
_-_ subtract_timestamp_timestamp (timestamp,timestamp) duration
_-_ subtract_uint64 (uint,uint) uint
_[_] index_list (list(A),int) A
_[_] index_map (map(A,B),A) B
_[_] optional_list_index_int (optional(list(A)),int) optional(A)
_[_] optional_map_index_value (optional(map(A,B)),A) optional(B)
@in in_list (A,list(A)) bool
@in in_map (A,map(A,B)) bool
size size_bytes (bytes) int
size bytes_size .(bytes) int
size size_list (list(A)) int
size list_size .(list(A)) int
size size_map (map(A,B)) int
size map_size .(map(A,B)) int
size size_string (string) int
size string_size .(string) int
type type (A) type(A)
bool bool_to_bool (bool) bool
bool string_to_bool (string) bool
bytes bytes_to_bytes (bytes) bytes
bytes string_to_bytes (string) bytes
double double_to_double (double) double
double int64_to_double (int) double
double string_to_double (string) double
double uint64_to_double (uint) double
duration duration_to_duration (duration) duration
duration int64_to_duration (int) duration
duration string_to_duration (string) duration
dyn to_dyn (A) dyn
int int64_to_int64 (int) int
int double_to_int64 (double) int
int duration_to_int64 (duration) int
int string_to_int64 (string) int
int timestamp_to_int64 (timestamp) int
int uint64_to_int64 (uint) int
string string_to_string (string) string
string bool_to_string (bool) string
string bytes_to_string (bytes) string
string double_to_string (double) string
string duration_to_string (duration) string
string int64_to_string (int) string
string timestamp_to_string (timestamp) string
string uint64_to_string (uint) string
string ip_to_string (ip) string
string cidr_to_string (cidr) string
timestamp timestamp_to_timestamp (timestamp) timestamp
timestamp int64_to_timestamp (int) timestamp
timestamp string_to_timestamp (string) timestamp
uint uint64_to_uint64 (uint) uint
uint double_to_uint64 (double) uint
uint int64_to_uint64 (int) uint
uint string_to_uint64 (string) uint
contains contains_string .(string,string) bool
endsWith ends_with_string .(string,string) bool
startsWith starts_with_string .(string,string) bool
matches matches (string,string) bool
matches matches_string .(string,string) bool
getFullYear timestamp_to_year .(timestamp) int
getFullYear timestamp_to_year_with_tz .(timestamp,string) int
getMonth timestamp_to_month .(timestamp) int
getMonth timestamp_to_month_with_tz .(timestamp,string) int
getDayOfYear timestamp_to_day_of_year .(timestamp) int
getDayOfYear timestamp_to_day_of_year_with_tz .(timestamp,string) int
getDayOfMonth timestamp_to_day_of_month .(timestamp) int
getDayOfMonth timestamp_to_day_of_month_with_tz .(timestamp,string) int
getDate timestamp_to_day_of_month_1_based .(timestamp) int
getDate timestamp_to_day_of_month_1_based_with_tz .(timestamp,string) int
getDayOfWeek timestamp_to_day_of_week .(timestamp) int
getDayOfWeek timestamp_to_day_of_week_with_tz .(timestamp,string) int
getHours timestamp_to_hours .(timestamp) int
getHours timestamp_to_hours_with_tz .(timestamp,string) int
getHours duration_to_hours .(duration) int
getMinutes timestamp_to_minutes .(timestamp) int
getMinutes timestamp_to_minutes_with_tz .(timestamp,string) int
getMinutes duration_to_minutes .(duration) int
getSeconds timestamp_to_seconds .(timestamp) int
getSeconds timestamp_to_seconds_tz .(timestamp,string) int
getSeconds duration_to_seconds .(duration) int
getMilliseconds timestamp_to_milliseconds .(timestamp) int
getMilliseconds timestamp_to_milliseconds_with_tz .(timestamp,string) int
getMilliseconds duration_to_milliseconds .(duration) int
";

const COMPARE: &str = "
_<_ less_bool (bool,bool) bool
_<_ less_int64 (int,int) bool
_<_ less_int64_double (int,double) bool
_<_ less_int64_uint64 (int,uint) bool
_<_ less_uint64 (uint,uint) bool
_<_ less_uint64_double (uint,double) bool
_<_ less_uint64_int64 (uint,int) bool
_<_ less_double (double,double) bool
_<_ less_double_int64 (double,int) bool
_<_ less_double_uint64 (double,uint) bool
_<_ less_string (string,string) bool
_<_ less_bytes (bytes,bytes) bool
_<_ less_timestamp (timestamp,timestamp) bool
_<_ less_duration (duration,duration) bool
_<=_ less_equals_bool (bool,bool) bool
_<=_ less_equals_int64 (int,int) bool
_<=_ less_equals_int64_double (int,double) bool
_<=_ less_equals_int64_uint64 (int,uint) bool
_<=_ less_equals_uint64 (uint,uint) bool
_<=_ less_equals_uint64_double (uint,double) bool
_<=_ less_equals_uint64_int64 (uint,int) bool
_<=_ less_equals_double (double,double) bool
_<=_ less_equals_double_int64 (double,int) bool
_<=_ less_equals_double_uint64 (double,uint) bool
_<=_ less_equals_string (string,string) bool
_<=_ less_equals_bytes (bytes,bytes) bool
_<=_ less_equals_timestamp (timestamp,timestamp) bool
_<=_ less_equals_duration (duration,duration) bool
_>_ greater_bool (bool,bool) bool
_>_ greater_int64 (int,int) bool
_>_ greater_int64_double (int,double) bool
_>_ greater_int64_uint64 (int,uint) bool
_>_ greater_uint64 (uint,uint) bool
_>_ greater_uint64_double (uint,double) bool
_>_ greater_uint64_int64 (uint,int) bool
_>_ greater_double (double,double) bool
_>_ greater_double_int64 (double,int) bool
_>_ greater_double_uint64 (double,uint) bool
_>_ greater_string (string,string) bool
_>_ greater_bytes (bytes,bytes) bool
_>_ greater_timestamp (timestamp,timestamp) bool
_>_ greater_duration (duration,duration) bool
_>=_ greater_equals_bool (bool,bool) bool
_>=_ greater_equals_int64 (int,int) bool
_>=_ greater_equals_int64_double (int,double) bool
_>=_ greater_equals_int64_uint64 (int,uint) bool
_>=_ greater_equals_uint64 (uint,uint) bool
_>=_ greater_equals_uint64_double (uint,double) bool
_>=_ greater_equals_uint64_int64 (uint,int) bool
_>=_ greater_equals_double (double,double) bool
_>=_ greater_equals_double_int64 (double,int) bool
_>=_ greater_equals_double_uint64 (double,uint) bool
_>=_ greater_equals_string (string,string) bool
_>=_ greater_equals_bytes (bytes,bytes) bool
_>=_ greater_equals_timestamp (timestamp,timestamp) bool
_>=_ greater_equals_duration (duration,duration) bool
";

const OPTIONAL: &str = "
optional.of optional_of (V) optional(V)
optional.ofNonZeroValue optional_ofNonZeroValue (V) optional(V)
optional.none optional_none () optional(V)
optional.unwrap optional_unwrap (list(optional(V))) list(V)
value optional_value .(optional(V)) V
hasValue optional_hasValue .(optional(V)) bool
or optional_or_optional .(optional(V),optional(V)) optional(V)
orValue optional_orValue_value .(optional(V),V) V
unwrapOpt optional_unwrapOpt .(list(optional(V))) list(V)
first list_first .(list(V)) optional(V)
last list_last .(list(V)) optional(V)
_?._ select_optional_field (dyn,string) optional(V)
_[?_] list_optindex_optional_int (list(V),int) optional(V)
_[?_] optional_list_optindex_optional_int (optional(list(V)),int) optional(V)
_[?_] map_optindex_optional_value (map(K,V),K) optional(V)
_[?_] optional_map_optindex_optional_value (optional(map(K,V)),K) optional(V)
";

const EXTENSIONS: &str = "
charAt string_char_at_int .(string,int) string
indexOf string_index_of_string .(string,string) int
indexOf string_index_of_string_int .(string,string,int) int
lastIndexOf string_last_index_of_string .(string,string) int
lastIndexOf string_last_index_of_string_int .(string,string,int) int
lowerAscii string_lower_ascii .(string) string
upperAscii string_upper_ascii .(string) string
replace string_replace_string_string .(string,string,string) string
replace string_replace_string_string_int .(string,string,string,int) string
split string_split_string .(string,string) list(string)
split string_split_string_int .(string,string,int) list(string)
substring string_substring_int .(string,int) string
substring string_substring_int_int .(string,int,int) string
trim string_trim .(string) string
format string_format .(string,list(dyn)) string
strings.quote strings_quote (string) string
join list_join .(list(string)) string
join list_join_string .(list(string),string) string
sets.contains list_sets_contains_list (list(T),list(T)) bool
sets.equivalent list_sets_equivalent_list (list(T),list(T)) bool
sets.intersects list_sets_intersects_list (list(T),list(T)) bool
cel.@mapInsert @mapInsert_map_key_value (map(K,V),K,V) map(K,V)
cel.@mapInsert @mapInsert_map_map (map(K,V),map(K,V)) map(K,V)
slice list_slice .(list(T),int,int) list(T)
flatten list_flatten .(list(list(T))) list(T)
flatten list_flatten_int .(list(dyn),int) list(dyn)
lists.range lists_range (int) list(int)
reverse list_reverse .(list(T)) list(T)
distinct list_distinct .(list(T)) list(T)
";

const KUBERNETES: &str = "
find string_find_string .(string,string) string
findAll string_find_all_string .(string,string) list(string)
findAll string_find_all_string_int .(string,string,int) list(string)
url string_to_url (string) url
isURL is_url_string (string) bool
getScheme url_get_scheme .(url) string
getHost url_get_host .(url) string
getHostname url_get_hostname .(url) string
getPort url_get_port .(url) string
getEscapedPath url_get_escaped_path .(url) string
getQuery url_get_query .(url) map(string,list(string))
ip string_to_ip (string) ip
ip cidr_ip .(cidr) ip
isIP is_ip (string) bool
ip.isCanonical ip_is_canonical (string) bool
family ip_family .(ip) int
isUnspecified ip_is_unspecified .(ip) bool
isLoopback ip_is_loopback .(ip) bool
isLinkLocalMulticast ip_is_link_local_multicast .(ip) bool
isLinkLocalUnicast ip_is_link_local_unicast .(ip) bool
isGlobalUnicast ip_is_global_unicast .(ip) bool
cidr string_to_cidr (string) cidr
isCIDR is_cidr (string) bool
containsIP cidr_contains_ip_string .(cidr,string) bool
containsIP cidr_contains_ip_ip .(cidr,ip) bool
containsCIDR cidr_contains_cidr_string .(cidr,string) bool
containsCIDR cidr_contains_cidr .(cidr,cidr) bool
masked cidr_masked .(cidr) cidr
prefixLength cidr_prefix_length .(cidr) int
quantity string_to_quantity (string) quantity
isQuantity is_quantity_string (string) bool
sign quantity_sign (quantity) int
isGreaterThan quantity_is_greater_than .(quantity,quantity) bool
isGreaterThan semver_is_greater_than .(semver,semver) bool
isLessThan quantity_is_less_than .(quantity,quantity) bool
isLessThan semver_is_less_than .(semver,semver) bool
compareTo quantity_compare_to .(quantity,quantity) int
compareTo semver_compare_to .(semver,semver) int
asApproximateFloat quantity_get_float .(quantity) double
asInteger quantity_get_int .(quantity) int
isInteger quantity_is_integer .(quantity) bool
add quantity_add .(quantity,quantity) quantity
add quantity_add_int .(quantity,int) quantity
sub quantity_sub .(quantity,quantity) quantity
sub quantity_sub_int .(quantity,int) quantity
semver string_to_semver (string) semver
semver string_bool_to_semver (string,bool) semver
isSemver is_semver_string (string) bool
isSemver is_semver_string_bool (string,bool) bool
major semver_major .(semver) int
minor semver_minor .(semver) int
patch semver_patch .(semver) int
format.named format-named (string) optional(format)
validate format-validate .(format,string) optional(list(string))
format.dns1123Label format.dns1123Label () format
format.dns1123Subdomain format.dns1123Subdomain () format
format.dns1035Label format.dns1035Label () format
format.qualifiedName format.qualifiedName () format
format.dns1123LabelPrefix format.dns1123LabelPrefix () format
format.dns1123SubdomainPrefix format.dns1123SubdomainPrefix () format
format.dns1035LabelPrefix format.dns1035LabelPrefix () format
format.labelValue format.labelValue () format
format.uri format.uri () format
format.uuid format.uuid () format
format.byte format.byte () format
format.date format.date () format
format.datetime format.datetime () format
jsonpatch.escapeKey string_jsonpatch_escapeKey_string (string) string
path authorizer_path .(authorizer,string) pathcheck
group authorizer_group .(authorizer,string) groupcheck
serviceAccount authorizer_serviceaccount .(authorizer,string,string) authorizer
resource groupcheck_resource .(groupcheck,string) resourcecheck
subresource resourcecheck_subresource .(resourcecheck,string) resourcecheck
namespace resourcecheck_namespace .(resourcecheck,string) resourcecheck
name resourcecheck_name .(resourcecheck,string) resourcecheck
check pathcheck_check .(pathcheck,string) decision
check resourcecheck_check .(resourcecheck,string) decision
errored decision_errored .(decision) bool
error decision_error .(decision) string
allowed decision_allowed .(decision) bool
reason decision_reason .(decision) string
fieldSelector authorizer_fieldselector .(resourcecheck,string) resourcecheck
labelSelector authorizer_labelselector .(resourcecheck,string) resourcecheck
";

/// Functions with one overload for each type of item.
const TYPED_LISTS: &str = "
isSorted list_int_is_sorted_bool .(list(int)) bool
isSorted list_uint_is_sorted_bool .(list(uint)) bool
isSorted list_double_is_sorted_bool .(list(double)) bool
isSorted list_bool_is_sorted_bool .(list(bool)) bool
isSorted list_duration_is_sorted_bool .(list(duration)) bool
isSorted list_timestamp_is_sorted_bool .(list(timestamp)) bool
isSorted list_string_is_sorted_bool .(list(string)) bool
isSorted list_bytes_is_sorted_bool .(list(bytes)) bool
sum list_int_sum_int .(list(int)) int
sum list_uint_sum_uint .(list(uint)) uint
sum list_double_sum_double .(list(double)) double
sum list_duration_sum_duration .(list(duration)) duration
max list_int_max_int .(list(int)) int
max list_uint_max_uint .(list(uint)) uint
max list_double_max_double .(list(double)) double
max list_bool_max_bool .(list(bool)) bool
max list_duration_max_duration .(list(duration)) duration
max list_timestamp_max_timestamp .(list(timestamp)) timestamp
max list_string_max_string .(list(string)) string
max list_bytes_max_bytes .(list(bytes)) bytes
min list_int_min_int .(list(int)) int
min list_uint_min_uint .(list(uint)) uint
min list_double_min_double .(list(double)) double
min list_bool_min_bool .(list(bool)) bool
min list_duration_min_duration .(list(duration)) duration
min list_timestamp_min_timestamp .(list(timestamp)) timestamp
min list_string_min_string .(list(string)) string
min list_bytes_min_bytes .(list(bytes)) bytes
indexOf list_a_index_of_int .(list(A),A) int
lastIndexOf list_a_last_index_of_int .(list(A),A) int
sort list_int_sort .(list(int)) list(int)
sort list_uint_sort .(list(uint)) list(uint)
sort list_double_sort .(list(double)) list(double)
sort list_bool_sort .(list(bool)) list(bool)
sort list_duration_sort .(list(duration)) list(duration)
sort list_timestamp_sort .(list(timestamp)) list(timestamp)
sort list_string_sort .(list(string)) list(string)
sort list_bytes_sort .(list(bytes)) list(bytes)
@sortByAssociatedKeys list_int_sortByAssociatedKeys .(list(T),list(int)) list(T)
@sortByAssociatedKeys list_uint_sortByAssociatedKeys .(list(T),list(uint)) list(T)
@sortByAssociatedKeys list_double_sortByAssociatedKeys .(list(T),list(double)) list(T)
@sortByAssociatedKeys list_bool_sortByAssociatedKeys .(list(T),list(bool)) list(T)
@sortByAssociatedKeys list_duration_sortByAssociatedKeys .(list(T),list(duration)) list(T)
@sortByAssociatedKeys list_timestamp_sortByAssociatedKeys .(list(T),list(timestamp)) list(T)
@sortByAssociatedKeys list_string_sortByAssociatedKeys .(list(T),list(string)) list(T)
@sortByAssociatedKeys list_bytes_sortByAssociatedKeys .(list(T),list(bytes)) list(T)
";
