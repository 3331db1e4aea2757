"""Upper bounds on the log-partition, tightened over trees and edges."""
