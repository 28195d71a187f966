mod history;
mod listed;
mod rules;
