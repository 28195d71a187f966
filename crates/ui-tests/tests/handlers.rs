//! The compiler's messages about a wrong handler: each names the argument or the result that is wrong.
//!
//! Messages change with the compiler. `TRYBUILD=overwrite cargo test -p convoke-ui-tests` writes the new ones beside their
//! programs: read them before you commit them.

#[test]
fn the_compiler_names_what_is_wrong_with_a_handler() {
    let programs = trybuild::TestCases::new();
    programs.compile_fail("tests/handlers/wrong_*.rs");
}
