"""Reading, checking, splitting and making the tables that sites hold; rows are samples everywhere."""
