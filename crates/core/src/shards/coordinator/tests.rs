mod history;
mod rules;
