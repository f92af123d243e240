use serde_json::json;

use super::*;
use crate::schema::builtin::group_versions;

#[test]
fn every_printer_has_one_cell_per_column() {
    let empty = json!({"metadata": {"name": "a"}});
    for kind in group_versions().iter().flat_map(|gv| &gv.resources) {
        let columns = columns(kind.group, kind.plural).len();
        let cells = cells(kind.group, kind.plural, &empty, Timestamp::UNIX_EPOCH);
        assert_eq!(cells.len(), columns, "{}/{}", kind.group, kind.plural);
    }
}
