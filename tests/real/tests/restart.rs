//! What happens when the API server goes away: `cargo xtask test-real`.

use real_tests::Real;
use sample_scenarios::{Scene, scenarios};

/// Proves C-12, PS-2.
#[tokio::test]
async fn the_sample_survives_a_restart_of_the_api_server() {
    scenarios::api_server_restarted(&Scene::new(Real::new().await).await).await;
}
