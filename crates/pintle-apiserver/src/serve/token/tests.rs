use super::*;

fn headers(value: &str) -> HeaderMap {
    HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())])
}

#[test]
fn only_the_exact_token_is_accepted() {
    let token = Token::new().unwrap();
    let opens = |headers: &HeaderMap| bearer(headers).is_some_and(|shown| token.is(shown));
    assert!(opens(&headers(&format!("Bearer {}", token.reveal()))));
    assert!(opens(&headers(&format!("bearer {}", token.reveal()))));
    for wrong in ["", "Bearer ", "Bearer x", "Basic Zm9v", "Bear"] {
        assert!(!opens(&headers(wrong)), "{wrong:?}");
    }
    assert!(!opens(&headers(&format!("Bearer {}x", token.reveal()))));
    assert!(!opens(&HeaderMap::new()));
    assert!(!format!("{token:?}").contains(token.reveal()));
}
