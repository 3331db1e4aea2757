"""Upper bounds on the log-partition, tightened over spanning trees and over edges."""
