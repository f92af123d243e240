use super::*;

#[test]
fn missing_control_plane_is_an_error_with_instructions() {
    for missing in [None, Some(OsString::new())] {
        let error = kubeconfig_path(VARIABLE, missing).unwrap_err();
        assert!(error.contains("cargo xtask real-cluster up"), "{error}");
        assert!(error.contains("cargo xtask test-real"), "{error}");
    }
    assert_eq!(
        kubeconfig_path(VARIABLE, Some("a/b".into())),
        Ok(PathBuf::from("a/b"))
    );
}
