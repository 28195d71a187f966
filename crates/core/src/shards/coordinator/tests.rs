mod history;
mod listed;
mod model;
mod rules;
